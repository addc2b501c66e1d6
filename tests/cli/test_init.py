"""`sgpu init`: what it writes is planned as it stands."""

import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/gitops"


def test_a_project_of_init_has_two_targets_and_a_script_that_is_there(sgpu: Shell) -> None:
    sgpu.write("train.py", "def main(data: str, lr: float = 0.1) -> str:\n    return data\n")
    assert sgpu.data("init", "--project", "--from", "train.py")["required"] == ["data"]
    sgpu.done("validate")
    plan = sgpu.data("plan", "-t", "dev")
    fields = {field["path"]: field["after"] for field in plan["changes"][0]["fields"]}
    assert (fields["type"], fields["gpus"]) == ("CPU", 2)
    assert (fields["args.data"], fields["args.lr"]) == ("CHANGE_ME", 0.1)
    assert plan["changes"][0]["code"]["files"] == 1  # the copy of the schema is no code


def test_the_template_is_the_example_under_another_name(sgpu: Shell) -> None:
    made = sgpu.data("init", "--template", "gitops", "--name", "7", ".")
    assert (made["name"], made["required"]) == ("7", [])
    written = {path for path in sgpu.folder.rglob("*") if path.is_file()}
    assert {str(path.relative_to(sgpu.folder)) for path in written} == set(made["written"])
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=EXAMPLE, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert {name for name in made["written"] if not name.startswith("schemas/")} == set(tracked)
    assert "2 runs and 1 job in 7 files" in sgpu.done("validate", "--strict").out
    sgpu.done("fmt", "--check")
    plan = sgpu.data("plan")
    assert {one["address"]: one["code"]["files"] for one in plan["changes"]} == {
        "run.evaluate": 1, "run.train": 1,
    }  # fmt: skip
    readme = (sgpu.folder / "README.md").read_text()
    assert "sgpu init --template gitops --name 7\n" in readme
    assert "repo:YOUR-TEAM/7:environment:prod" in readme
    assert "there is a `" in sgpu.exits(1, "init", "--template", "gitops", ".").err


@pytest.mark.parametrize("option", ["--project", "--from=train.py"])
def test_a_template_and_a_script_of_ones_own_exclude_each_other(sgpu: Shell, option: str) -> None:
    refused = sgpu.exits(64, "init", "--template", "gitops", option)
    assert f"leave `{option.partition('=')[0]}` out" in refused.err
