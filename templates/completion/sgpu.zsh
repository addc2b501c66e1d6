#compdef sgpu
# Completion of sgpu for zsh: eval "$(sgpu completion zsh)" in ~/.zshrc, below `compinit`.
# `sgpu completion values -- WORD...` prints what the last word may be.
_sgpu() {
    local -a whole begun
    local value help files folders
    while IFS=$'\t' read -r value help; do
        case $value in
            :files) files=yes ;;
            :folders) folders=yes ;;
            *=|*.) begun+=("${value//:/\\:}${help:+:$help}") ;;
            *) whole+=("${value//:/\\:}${help:+:$help}") ;;
        esac
    done < <(sgpu completion values -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    (( ${#whole} )) && _describe -V value whole
    (( ${#begun} )) && _describe -V value begun -S ''
    [[ -n $files ]] && _files
    [[ -n $folders ]] && _files -/
    return 0
}
if [[ $funcstack[1] == _sgpu ]]; then
    _sgpu "$@"
else
    compdef _sgpu sgpu
fi
