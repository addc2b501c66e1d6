"""`-o github`: findings at the lines of the YAML, as GitHub Actions shows them."""

import json
from dataclasses import replace

from tests.cli.conftest import Shell

WRONG = "name: train\ngpus: 1\ntype: CPU\ncommand: 'true'\nmlflow: {enabled: false}\nretries: 2\n"


def test_a_mistake_stands_at_its_line_and_fails_the_step(sgpu: Shell) -> None:
    sgpu.write("run.yaml", WRONG)
    for command in ("validate", "plan"):
        told = sgpu.exits(1, command, "-o", "github")
        assert told.out.startswith("::error file=run.yaml,line=6,col=1,title=unknown_key::")
        assert told.out.count("\n") == 1
        assert "error[unknown_key]" in told.err


def test_paths_begin_where_the_repository_does(sgpu: Shell) -> None:
    sgpu.write("gpu/run.yaml", WRONG)
    inside = replace(sgpu, environ={**sgpu.environ, "GITHUB_WORKSPACE": str(sgpu.folder)})
    told = inside.here("validate", "-o", "github", cwd=sgpu.folder / "gpu")
    assert told.out.startswith("::error file=gpu/run.yaml,line=6,")
    elsewhere = replace(sgpu, environ={**sgpu.environ, "GITHUB_WORKSPACE": "/nowhere/at/all"})
    told = elsewhere.here("validate", "-o", "github", cwd=sgpu.folder / "gpu")
    assert told.out.startswith("::error file=run.yaml,line=6,")


def test_a_valid_file_and_its_plan_have_a_line_of_counts(sgpu: Shell) -> None:
    sgpu.write("run.yaml", WRONG.replace("retries: 2\n", ""))
    told = sgpu.here("validate", "-o", "github")
    assert (told.code, told.out) == (0, "run.yaml is valid: 1 run\n")
    assert sgpu.done("plan", "-o", "github").out.splitlines()[-1].startswith("Plan: 1 to create,")


def test_checks_of_a_plan_are_those_of_its_json(sgpu: Shell) -> None:
    sgpu.write("train.py", "def main():\n    pass\n")
    sgpu.write(
        "run.yaml",
        "name: train\ngpus: 1\ntype: CPU\nentrypoint: train.py:main\nargs: {lr: 1}\n"
        "mlflow: {enabled: false}\n",
    )
    told = sgpu.here("plan", "-o", "github")
    checks = json.loads(sgpu.here("plan", "-o", "json").out)["data"]["checks"]
    assert checks
    for check in checks:
        kind = {"info": "notice"}.get(check["severity"], check["severity"])
        place = check["place"]
        at = f"file=run.yaml,line={place['line']},col={place['column']}," if place else ""
        assert f"::{kind} {at}title={check['id']}::" in told.out
    assert told.code == 1


def test_an_error_without_a_place_is_an_annotation_too(sgpu: Shell) -> None:
    told = sgpu.exits(1, "validate", "-o", "github")
    assert told.out.startswith("::error title=")
    assert "there is no `sgpu.yml` and no `run.yaml`" in told.out
