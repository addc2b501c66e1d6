# Completion of sgpu for bash: eval "$(sgpu completion bash)" in ~/.bashrc.
# `sgpu completion values -- WORD...` prints what the last word may be.
_sgpu_complete() {
    local words=() word after_equals= value help
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        # bash cuts words at `=`
        if [[ $word == "=" && ${#words[@]} -gt 0 ]]; then
            words[${#words[@]}-1]+="="
            after_equals=yes
        elif [[ $after_equals && ( $word || ${COMP_LINE:COMP_POINT-1:1} == "=" ) ]]; then
            words[${#words[@]}-1]+=$word
            after_equals=
        else
            words+=("$word")
            after_equals=
        fi
    done
    local whole=${words[${#words[@]}-1]} current=${COMP_WORDS[COMP_CWORD]}
    [[ $current == "=" ]] && current=
    local before=${whole%"$current"}
    COMPREPLY=()
    while IFS=$'\t' read -r value help; do
        case $value in
            :files) compopt -o filenames; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current") ;;
            :folders) compopt -o filenames; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$current") ;;
            *=|*.) compopt -o nospace; COMPREPLY+=("${value#"$before"}") ;;
            *) COMPREPLY+=("${value#"$before"}") ;;
        esac
    done < <(sgpu completion values -- "${words[@]}" 2>/dev/null)
}
complete -F _sgpu_complete sgpu
