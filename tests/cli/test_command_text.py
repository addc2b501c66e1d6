"""Text of a command that bash would refuse once the run has its GPUs is found before."""

import json

import pytest

from tests.cli.conftest import Shell

HEAD = "name: a\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\nvariables: {size: 1}\n"


def found(sgpu: Shell, command: object, verb: str = "validate", more: str = "") -> list[list[str]]:
    """The severity, code and hint of each finding about a command."""
    sgpu.write("run.yaml", f"{HEAD}command: {json.dumps(command)}\n{more}")
    answer = sgpu.here(verb, "-o", "json").json
    items = answer["error"]["diagnostics"] if "error" in answer else None
    if items is None:
        items = answer["data"].get("diagnostics", answer["data"].get("checks"))
    assert ("error" in answer) == any(item["severity"] == "error" for item in items)
    return [[one["severity"], one.get("code") or one["id"], one["hint"]] for one in items]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("echo ${bundle.target}", "did you mean `${target.name}`?"),
        ("echo ${bundle.git.commit}", "did you mean `${git.commit}`?"),
        ("echo ${vars.size}", "did you mean `${var.size}`?"),
        ("echo ${{ var.size }}", "did you mean `${var.size}`?"),
        ("echo ${params.size}", "did you mean `${var.size}`?"),
        ("echo ${hp.rate}", "did you mean `${matrix.rate}`?"),
        ("echo ${HOME.txt}", "write `${HOME}.txt` for the value of `HOME` before the dot"),
        ("echo ${secrets.HF_TOKEN}", "write `env: {secrets: {HF_TOKEN: env:HF_TOKEN}}`"),
        ("echo ${run.b.output/w.pt}", "write `${run.b.output}` for the folder"),
        ("echo ${resources.jobs.x.id}", "references are `${var.NAME}`, "),
        ("echo ${env.HOME", "did you mean `${env.HOME}`?"),
        ("echo ${{ github.sha }}", "references are `${var.NAME}`, "),
        ("echo ${.name}", "references are `${var.NAME}`, "),
        ("echo ${runs[0].name}", "references are `${var.NAME}`, "),
        ("echo ${hydra:job.num}", "references are `${var.NAME}`, "),
        ("echo ${my|name}", "references are `${var.NAME}`, "),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
def test_a_name_with_a_dot_that_a_shell_would_expand(
    sgpu: Shell, text: str, hint: str, *, listed: bool
) -> None:
    command = ["bash", "-c", text + " ${matrix.rate}"] if listed else text + " ${matrix.rate}"
    ((severity, code, said),) = found(sgpu, command, more="matrix: {rate: [1, 2]}\n")
    assert (severity, code) == ("error", "near_reference")
    assert said.startswith(hint)


@pytest.mark.parametrize(
    "command",
    [
        "echo ${VAR:-x} ${a[0]} ${#x} ${x%.py} ${x:-${a.b}} '${a.b}'",
        "cat <<'X'\n${a.b}\nX\n",
        "echo ${@} ${1} ${#} ${?} ${!x} ${!x@} ${#a[@]} ${a[b[1]]}",
        "echo ${a[0]%.py} ${x@Q} ${x:1} ${x:n:2}",
        "echo ${var.size} ${target.name}",
        ["python", "train.py", "dir=${model.name}"],
        ["bash", "train.sh", "${model.name}"],
    ],
)
def test_what_bash_accepts_and_what_a_program_reads_stays(sgpu: Shell, command: object) -> None:
    assert found(sgpu, command) == []


def test_a_reference_that_comes_from_a_variable_is_found(sgpu: Shell) -> None:
    more = "targets: {dev: {variables: {size: 'x ${wh.y}'}}}\n"
    ((severity, code, _),) = found(sgpu, "echo ${var.size}", more=more)
    assert (severity, code) == ("error", "near_reference")


@pytest.mark.parametrize("field", ["args: ['${env.HOME']", "args: {a: {b: '${var.size/x'}}"])
def test_a_reference_without_an_end_in_arguments(sgpu: Shell, field: str) -> None:
    start = "entrypoint: a.py" + (":f" if "{a" in field else "")
    sgpu.write("run.yaml", f"{HEAD}{start}\n{field}\n")
    answer = sgpu.here("validate", "-o", "json").json
    assert [item["code"] for item in answer["error"]["diagnostics"]] == ["near_reference"]


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ('echo "done', "error"),
        ("echo 'it's'", "error"),
        ("if true; then echo 1", "error"),
        ("echo ${HOME", "error"),
        ("if true", "error"),
        ("for x in 1 2\necho x", "error"),
        ("python train.py --in data --do 1", None),
        ("exit 0\necho 'what follows is never read", "warning"),
        ("shopt -s extglob\necho !(a)", None),
        ("echo \"$(date +'%s')\"", None),
    ],
)
def test_text_that_bash_cannot_read_is_found_at_plan(
    sgpu: Shell, text: str, severity: str | None
) -> None:
    expected = [[severity, "bad_command_text"]] if severity else []
    assert [item[:2] for item in found(sgpu, text, "plan")] == expected


def test_asking_bash_executes_nothing(sgpu: Shell) -> None:
    sgpu.write("start.sh", f"touch {sgpu.folder}/mark")
    sgpu.environ["BASH_ENV"] = f"{sgpu.folder}/start.sh"
    found(sgpu, f'touch {sgpu.folder}/mark; echo $(touch {sgpu.folder}/mark) "x', "plan")
    assert not (sgpu.folder / "mark").exists()


@pytest.mark.parametrize("text", ["slep 1", "cd / && A=1 slep 1", "# why\nexec slep \\\n 1"])
def test_the_first_program_of_a_text_is_looked_up(sgpu: Shell, text: str) -> None:
    expected = [["warning", "program_missing", "did you mean `sleep`?"]]
    assert found(sgpu, text, "plan") == expected


@pytest.mark.parametrize(
    "text",
    ["slep || true", "slep() { :; }\nslep", "PATH=$PWD slep", ". ./x.sh\nslep", "'slep' 1", "$X"],
)
def test_a_program_that_may_be_there_is_not_reported(sgpu: Shell, text: str) -> None:
    assert found(sgpu, text, "plan") == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("source ~/.bashrc\npython train.py", "line 1 of the command, `source ~/.bashrc`, needs"),
        ("echo x\n. $HOME/.bash_profile; echo y", "line 2 of the command, `. $HOME/.bash"),
        ("echo x && conda activate train", "`conda activate train`"),
        ("if true; then conda activate train; fi", "`conda activate train`"),
    ],
)
def test_text_for_interactive_shells_is_a_warning_of_the_plan(
    sgpu: Shell, text: str, named: str
) -> None:
    checks = sgpu_checks(sgpu, text)
    (check,) = [one for one in checks if one["id"] == "interactive_setup"]
    assert check["severity"] == "warning"
    assert "conda run -n ENV" in check["hint"]
    assert named in check["summary"]


@pytest.mark.parametrize(
    "text",
    [
        "source setup.sh\nconda run -n train python train.py",
        "set +eu\nsource ~/.bashrc\nset -eu\npython train.py",
        "echo conda activate train; cat ~/.bashrc",
    ],
)
def test_text_that_only_looks_like_that_is_none(sgpu: Shell, text: str) -> None:
    sgpu.write("setup.sh", "")
    assert "interactive_setup" not in [one["id"] for one in sgpu_checks(sgpu, text)]


def sgpu_checks(sgpu: Shell, text: str) -> list[dict[str, str]]:
    sgpu.write("run.yaml", f"{HEAD}command: {json.dumps(text)}\n")
    checks: list[dict[str, str]] = sgpu.data("plan")["checks"]
    return checks
