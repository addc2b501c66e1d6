"""The Tab key offers commands, options and the values that are there."""

import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sgpu_decl.cli.completion_values import _OF_FILE, KINDS
from sgpu_decl.places.folder import MARKER
from sgpu_decl.text.overrides import _OTHER_OPTIONS
from tests.cli.conftest import Shell
from tests.cli.test_every_option import TREE
from tests.support import COMMAND_RUN, PATIENCE, shell_program

RUN = COMMAND_RUN + "targets: {dev: {}, prod: {}}\n"


def values(sgpu: Shell, *words: str) -> list[str]:
    answer = sgpu.here("completion", "values", "--", *words)
    assert (answer.code, answer.err) == (0, "")
    return [line.partition("\t")[0] for line in answer.out.splitlines()]


@pytest.fixture
def launched(sgpu: Shell) -> Shell:
    sgpu.write("run.yaml", RUN)
    sgpu.done("apply", "-y")
    sgpu.done("apply", "-y", "--rerun", "hello")
    return sgpu


def test_commands_and_options(sgpu: Shell) -> None:
    assert values(sgpu, "st") == ["start", "status", "stacks", "state"]
    commands = ["list", "show", "mv", "rm", "pull", "push", "log", "migrate"]
    commands += ["claim", "compact", "unlock"]
    assert values(sgpu, "state", "") == commands
    assert values(sgpu, "logs", "--re") == ["--restart"]
    assert values(sgpu, "plan", "-o", "") == ["text", "json", "markdown", "github"]
    assert values(sgpu, "help", "state", "u") == ["unlock"]
    assert values(sgpu, "completion", "") == ["bash", "zsh", "fish", "values"]
    assert values(sgpu, "explain", "unknown_k") == ["unknown_key"]
    assert "plan" in values(sgpu, "nonsense", "")


def test_runs_attempts_and_targets(launched: Shell) -> None:
    for command in ("logs", "results", "fetch", "wait", "cancel", "status", "show", "plan"):
        assert values(launched, command, "") == ["hello", ":files"]
        assert values(launched, command, "hello#") == ["hello#2", "hello#1", ":files"]
    assert values(launched, "apply", "--rerun", "he") == ["hello"]
    assert values(launched, "state", "mv", "run") == ["run.hello"]
    assert values(launched, "logs", "-t", "") == ["dev", "prod"]
    assert values(launched, "logs", "-t", "dev", "") == [":files"]
    assert values(launched, "logs", "--project", "") == [":folders"]


def test_fields_of_set_and_explain(launched: Shell) -> None:
    fields = values(launched, "apply", "--set", "")
    assert {"gpus=", "env.", "args."} <= set(fields)
    assert not {"name=", "targets.", "variables."} & set(fields)
    assert values(launched, "apply", "--set", "env.va") == ["env.variables."]
    assert values(launched, "apply", "--set", "env.variables.") == []
    assert values(launched, "explain", "")[-2:] == ["run", "project"]
    assert values(launched, "explain", "run.env.va") == ["run.env.variables"]
    assert "run.gpus" in values(launched, "explain", "run.")


def test_what_no_option_may_set_is_not_offered() -> None:
    assert set(_OTHER_OPTIONS) <= set(_OF_FILE)


def test_runs_that_a_project_declares(launched: Shell) -> None:
    launched.write("sgpu.yml", "project: {name: p}\nruns: {train: {gpus: 1}, eval: {}}\n")
    for words in (("plan", ""), ("apply", ""), ("plan", "--select", "")):
        offered = [item for item in values(launched, *words) if item != ":files"]
        assert offered == ["hello", "train", "eval"]
    assert values(launched, "logs", "") == ["hello", ":files"]
    blocks = values(launched, "plan", "--set", "")
    in_root = ["runs.", "jobs.", "environments.", "functions.", "defaults.", "run_as.", "presets."]
    assert blocks == in_root
    assert values(launched, "plan", "--set", "runs.") == ["runs.train.", "runs.eval."]
    assert values(launched, "plan", "--set", "runs.train.gp") == ["runs.train.gpus="]


SHARED = """\
project: {name: p}
state: %s
runs: {hello: {gpus: 1, type: CPU, command: 'true', mlflow: {enabled: false}}, more: {gpus: 1}}
targets: {prod: {}}
"""


def test_a_shared_state_is_not_asked(sgpu: Shell, tmp_path: Path) -> None:
    """Its server accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"postgresql://u@127.0.0.1:{server.getsockname()[1]}/sgpu"
        state = f"{{kind: postgres, url: '{url}'}}"
        sgpu.write("sgpu.yml", SHARED % state)
        assert values(sgpu, "plan", "--select", "") == ["hello", "more"]
        assert values(sgpu, "logs", "") == [":files"]
        assert values(sgpu, "state", "show", "") == []
        assert values(sgpu, "plan", "-t", "") == ["prod"]

        (tmp_path / "shared").mkdir()
        (tmp_path / "shared" / MARKER).touch()
        folder = SHARED % f"{{kind: folder, path: {tmp_path / 'shared'}}}"
        sgpu.write("sgpu.yml", folder.replace(", more: {gpus: 1}", ""))
        sgpu.ran("apply", "-y")
        sgpu.write("sgpu.yml", SHARED % state)
        assert values(sgpu, "logs", "hello#") == ["hello#1", ":files"]
        assert values(sgpu, "plan", "--select", "") == ["hello", "more"]
        assert values(sgpu, "state", "show", "") == ["run.hello"]
        with pytest.raises(BlockingIOError):
            server.accept()


def test_every_path_that_is_offered_can_be_set(launched: Shell) -> None:
    for path in values(launched, "plan", "--set", ""):
        refused = launched.here("plan", "--set", f"{path.rstrip('=.')}={{}}")
        assert "unknown_path" not in refused.err, path


def test_what_cannot_be_read_offers_nothing(sgpu: Shell) -> None:
    sgpu.write("run.yaml", "name: [\n")
    (sgpu.folder / ".sgpu" / "default").mkdir(parents=True)
    sgpu.write(".sgpu/default/state.db", "no database")
    assert values(sgpu, "logs", "") == [":files"]
    assert values(sgpu, "logs", "-t", "") == []
    assert values(sgpu, "logs", "--project", "absent", "") == [":files"]


def test_every_kind_of_value_is_used() -> None:
    used = set()
    for command in TREE.values():
        for parameter in command.params:
            callback = parameter._custom_shell_complete
            if callback is not None:
                (kinds,) = (cell.cell_contents for cell in callback.__closure__ or ())
                used |= set(kinds)
    assert used == {*KINDS, "files", "folders"}


@pytest.fixture
def on_path(launched: Shell, tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds this `sgpu`."""
    program = shell_program(
        tmp_path / "bin/sgpu", f'exec {shlex.quote(sys.executable)} -m sgpu_decl "$@"'
    )
    return {**launched.environ, "PATH": f"{program.parent}:{launched.environ['PATH']}"}


BASH = """\
eval "$(sgpu completion bash)"
compopt() { :; }
try() {
    COMP_LINE=$1 COMP_POINT=${#1}
    shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _sgpu_complete
    echo "${COMPREPLY[*]}"
}
try 'sgpu lo' sgpu lo
try 'sgpu logs he' sgpu logs he
try 'sgpu logs --target=' sgpu logs --target =
try 'sgpu logs --target=pr' sgpu logs --target = pr
try 'sgpu plan --set gpus=' sgpu plan --set gpus =
try 'sgpu plan --set gpus=2 --set ty' sgpu plan --set gpus = 2 --set ty
try 'sgpu validate ru' sgpu validate ru
"""


def test_the_script_for_bash(launched: Shell, on_path: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", BASH], cwd=launched.folder, env=on_path, capture_output=True, text=True,
        timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "logs", "hello", "dev prod", "prod", "", "type=", "run.yaml"
    ]  # fmt: skip
    assert done.stderr == ""


def test_the_script_for_fish(launched: Shell, on_path: dict[str, str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("there is no fish")
    asked = 'sgpu completion fish | source; for l in "sgpu lo" "sgpu logs he" "sgpu logs -t "'
    done = subprocess.run(
        ["fish", "-c", f"{asked}; complete -C $l; end"], cwd=launched.folder, env=on_path,
        capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    found = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert found == ["logs", "hello", "dev", "prod"]


ZSH = """\
autoload -Uz compinit && compinit -u -D
eval "$(sgpu completion zsh)"
_describe() { while [[ $1 == -* ]]; do shift; done; print -l -- "${(@P)2}"; }
_files() { print files }
try() { local -a words=("$@"); local CURRENT=$#; _sgpu }
try sgpu lo
try sgpu logs he
try sgpu plan --set gp
"""


def test_the_script_for_zsh(launched: Shell, on_path: dict[str, str]) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("there is no zsh")
    done = subprocess.run(
        ["zsh", "-fc", ZSH], cwd=launched.folder, env=on_path, capture_output=True, text=True,
        timeout=PATIENCE, check=True,
    )  # fmt: skip
    found = [re.split(r"(?<!\\):", line)[0] for line in done.stdout.splitlines()]
    assert found == ["logs", "hello", "files", "gpus="]
