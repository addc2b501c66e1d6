"""What a shell expands in a text. bash itself says so: it refuses a name with a dot where it
expands one, and nowhere else."""

import subprocess

import pytest

from sgpu_decl.text.shell_text import expansions, shell_words

TEXTS = [
    "echo ${a.b}", 'echo "${a.b}"', "echo '${a.b}'", "echo \\${a.b}", 'echo "\\"${a.b}"',
    "# ${a.b}\ntrue", "echo x#${a.b}", "echo $# ${a.b}", "echo \"it's ${a.b}\"",
    "cat <<X\n${a.b}\nX", "cat <<'X'\n${a.b}\nX\ntrue", "cat <<-X\n\t${a.b}\n\tX",
    "cat <<\\X\n${a.b}\nX", "cat <<X\n\\${a.b}\nX", "cat <<A <<'B'\n${a.b}\nA\n${c.d}\nB",
    "cat <<'A' <<'B'\n${a.b}\nA\n${c.d}\nB", 'cat <<<"${a.b}"', "echo $((1<<2)) ${a.b}",
    "echo \"$(echo '${a.b}')\"", 'echo "$(echo "${a.b}")"', "echo $(echo ')' '${a.b}')",
    "echo `echo ${a.b}`", "x=1; echo ${x:-${a.b}}", "echo $'\\'${a.b}'", "echo ${#a.b}",
    "x=1; echo ${x%.py} ${x/a.b/c} ${x:-a.b} ${x##*.}", "x=1; echo \"${x:+'a.b'}\" '${a.b}'",
    "x=(1 2); echo ${x[0]} ${#x} ${x[@]} ${!x*} ${x[-1]}", "echo \"${HOME}/it's\" '${a.b}'",
    "awk 'BEGIN {print \"${a.b}\"}'",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_expanded_is_what_bash_expands(text: str) -> None:
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    dotted = [one.text for one in expansions(text) if "." in one.text.split(":")[0][:6]]
    refused = [item for item in dotted if item.lstrip("${#").startswith("a.b")]
    assert bool(refused) == ("bad substitution" in done.stderr), done.stderr


@pytest.mark.parametrize(
    ("command", "position"),
    [
        (["bash", "-c", "TEXT"], 2),
        (["/bin/sh", "-ec", "TEXT", "a"], 2),
        (["bash", "-euo", "pipefail", "-c", "TEXT"], 4),
        (["bash", "-ceuo", "pipefail", "TEXT"], 3),
        (["bash", "-c", "-e", "--", "TEXT"], 4),
        (["bash", "--norc", "-c", "TEXT"], 3),
        (["env", "A=1", "dash", "-c", "TEXT"], 4),
        (["bash", "script.sh", "-c", "TEXT"], None),
        (["bash", "-c"], None),
        (["ksh", "-c", "TEXT"], None),
        (["python", "-c", "TEXT"], None),
    ],
)
def test_the_text_in_a_list_that_a_shell_reads(command: list[str], position: int | None) -> None:
    assert list(shell_words(command)) == ([] if position is None else [position])
