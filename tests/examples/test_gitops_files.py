"""The files of the example `gitops`: they are valid, and its pipelines only call its scripts."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import jsonschema
import pytest
import yaml

from sgpu_decl import __version__
from sgpu_decl.distribution import shipped_folder
from tests.examples.conftest import EXAMPLES

FOLDER = EXAMPLES / "gitops"
GITHUB = FOLDER / ".github/workflows/sgpu.yml"
GITLAB = FOLDER / ".gitlab-ci.yml"


@pytest.mark.parametrize(
    ("file", "schema"), [(GITHUB, "vendor.github-workflows"), (GITLAB, "vendor.gitlab-ci")]
)
def test_a_pipeline_fits_the_schema_of_its_platform(file: Path, schema: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def test_every_step_of_a_pipeline_is_a_script_that_is_there() -> None:
    lines = [*_commands(yaml.safe_load(GITHUB.read_text()), "run")]
    lines += _commands(yaml.safe_load(GITLAB.read_text()), "script", "before_script")
    assert {line.removeprefix("bash ci/") for line in lines} == {
        "install.sh", "plan.sh", "apply.sh", "drift.sh",
    }  # fmt: skip
    for line in lines:
        subprocess.run(["bash", "-n", FOLDER / line.removeprefix("bash ")], check=True)


def _commands(value: Any, *keys: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in keys:
                yield from [item] if isinstance(item, str) else item
            else:
                yield from _commands(item, *keys)
    elif isinstance(value, list):
        for item in value:
            yield from _commands(item, *keys)


def test_a_pipeline_says_nothing_of_users_to_a_shell() -> None:
    """Text of an event, such as a branch, is a variable of a step and never part of a command."""
    assert all("${{" not in line for line in _commands(yaml.safe_load(GITHUB.read_text()), "run"))


def test_only_the_job_that_applies_is_of_the_environment_prod() -> None:
    github = yaml.safe_load(GITHUB.read_text())["jobs"]
    gitlab = yaml.safe_load(GITLAB.read_text())
    environments = {
        name: (github[name]["environment"], gitlab[name]["environment"])
        for name in ("plan", "apply", "drift", "heal")
    }
    planner = {"name": "plan", "action": "access"}
    assert environments == {
        "plan": ("plan", planner), "apply": ("prod", "prod"), "drift": ("plan", planner),
        "heal": ("prod", "prod"),
    }  # fmt: skip
    assert github["plan"]["permissions"] == {
        "contents": "read", "pull-requests": "write", "id-token": "write",
    }  # fmt: skip
    assert "write" not in {
        access for name, access in github["apply"]["permissions"].items() if name != "id-token"
    }


def test_the_version_that_ci_installs_is_this_one() -> None:
    (line,) = re.findall(r"^[^#\n]+$", (FOLDER / "ci/requirements.in").read_text(), re.MULTILINE)
    assert line.partition("[")[0] == f"./ci/sgpu_decl-{__version__}-py3-none-any.whl"


@pytest.mark.expensive
@pytest.mark.packaging
def test_ci_installs_the_pinned_wheel_and_no_other(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "ci", tmp_path / "ci")
    environ = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_TARGET": str(tmp_path / "site"),
    }

    def install() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "ci/install.sh"], cwd=tmp_path, env=environ,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    unpinned = install()
    assert unpinned.returncode == 1
    assert "`ci/requirements.txt` is missing" in unpinned.stderr

    wheel = tmp_path / f"ci/sgpu_decl-{__version__}-py3-none-any.whl"
    information = f"sgpu_decl-{__version__}.dist-info"
    with ZipFile(wheel, "w") as archive:
        archive.writestr(
            f"{information}/METADATA",
            f"Metadata-Version: 2.1\nName: sgpu-decl\nVersion: {__version__}\n",
        )
        archive.writestr(
            f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{information}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (tmp_path / "ci/requirements.txt").write_text(
        f"./ci/{wheel.name} \\\n    --hash=sha256:{digest}\n"
    )
    pinned = install()
    assert pinned.returncode == 0, pinned.stderr
    assert (tmp_path / "site" / information).is_dir()

    with ZipFile(wheel, "a") as archive:
        archive.writestr("sgpu_decl/__init__.py", "")
    other = install()
    assert other.returncode == 1
    assert "DO NOT MATCH THE HASHES" in other.stderr


@pytest.mark.parametrize(("file", "form"), [("sgpu.yml", "project"), ("evaluation/run.yml", "run")])
def test_a_file_names_its_schema_and_fits_it(file: str, form: str) -> None:
    first, text = (FOLDER / file).read_text().split("\n", 1)
    schema = ((FOLDER / file).parent / first.partition("$schema=")[2]).resolve()
    assert schema == shipped_folder("schemas") / f"{form}.v1.schema.json"
    jsonschema.validate(yaml.safe_load(text), json.loads(schema.read_text()))


Copied = Callable[[str], Any]  # gives an Example of conftest.py


def test_the_example_applies_here_and_is_then_up_to_date(example: Copied) -> None:
    item = example("gitops")
    applied = item.sgpu("apply", "-y")
    assert applied.returncode == 0, applied.stderr
    assert {run["state"] for run in item.data("status")["runs"]} == {"succeeded"}
    assert item.sgpu("plan", "--detailed-exitcode").returncode == 0


@pytest.mark.expensive
def test_the_first_push_is_green_and_a_later_one_without_a_review_is_not(
    example: Copied, tmp_path: Path
) -> None:
    item = example("gitops")

    def git(*words: str) -> None:
        named = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *named, *words], cwd=item.folder, check=True)

    def push() -> "subprocess.CompletedProcess[str]":
        git("add", ".")
        git("commit", "-q", "--allow-empty", "-m", "x")
        git("push", "-q", "origin", "HEAD:main")
        script = Path(sys.executable).parent
        return subprocess.run(
            ["bash", "ci/apply.sh"],
            cwd=item.folder,
            env={
                **os.environ, **item.environ, "BRANCH": "main", "TARGET": "dev",
                "PATH": f"{script}:{os.environ['PATH']}",
            },
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    git("init", "-q", "--bare", "-b", "main", str(tmp_path / "origin.git"))
    git("init", "-q", "-b", "main")
    git("remote", "add", "origin", str(tmp_path / "origin.git"))
    first = push()
    assert first.returncode == 0, first.stderr
    assert "this job waits for a pull request" in first.stdout
    assert item.sgpu("apply", "-y", "--select", "run.evaluate").returncode == 0
    assert push().returncode == 3
