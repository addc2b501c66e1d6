# Completion of sgpu for fish: sgpu completion fish > ~/.config/fish/completions/sgpu.fish
# `sgpu completion values -- WORD...` prints what the last word may be.
function __sgpu_values
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in (sgpu completion values -- $words[2..-1] "$current" 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path "$current"
            case ':folders'
                __fish_complete_directories "$current"
            case '*'
                echo $line
        end
    end
end
complete -c sgpu -f -a '(__sgpu_values)'
