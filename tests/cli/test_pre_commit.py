"""The hooks of `.pre-commit-hooks.yaml`: their commands are run as pre-commit runs them, in the top
folder and without names of files. https://pre-commit.com/#creating-new-hooks"""

import os
import shlex
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Shell
from tests.docs.pages import ROOT, blocks

HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
KEYS = {
    "id", "name", "entry", "language", "files", "exclude", "types", "types_or", "exclude_types",
    "always_run", "fail_fast", "verbose", "pass_filenames", "require_serial", "description",
    "language_version", "minimum_pre_commit_version", "args", "stages", "additional_dependencies",
}  # fmt: skip
"""Those of a hook, from the page above."""
RUN = "name: train\ngpus: 2\ntype: CPU\ncommand: [echo, hi]\nmlflow: {enabled: false}\n"


@pytest.fixture
def repository(tmp_path: Path) -> Shell:
    (tmp_path / "run.yaml").write_text(RUN)
    (tmp_path / "ci.yml").write_text("on:   push\n")
    return Shell(tmp_path, dict(os.environ))


def run_hook(repository: Shell, name: str, *arguments: str) -> int:
    program, *words = shlex.split(HOOKS[name]["entry"])
    assert program == "sgpu"
    return repository.here(*words, *arguments).code


def test_hooks_have_the_keys_that_pre_commit_knows() -> None:
    assert set(HOOKS) == {"sgpu-fmt", "sgpu-validate"}
    for hook in HOOKS.values():
        assert {"id", "name", "entry", "language"} <= hook.keys() <= KEYS
        assert hook["language"] == "python"
        assert hook["pass_filenames"] is False


def test_fmt_changes_the_files_of_sgpu_alone(repository: Shell) -> None:
    """pre-commit fails a hook that changes a file, whatever its exit code is."""
    run = repository.folder / "run.yaml"
    run.write_text(RUN.replace("gpus: 2", "gpus:   2"))
    assert run_hook(repository, "sgpu-fmt") == 0
    assert run.read_text() == RUN
    assert (repository.folder / "ci.yml").read_text() == "on:   push\n"


def test_validate_fails_for_a_mistake(repository: Shell) -> None:
    assert run_hook(repository, "sgpu-validate") == 0
    (repository.folder / "other.yaml").write_text(RUN.replace("gpus: 2", "gpus: none"))
    assert run_hook(repository, "sgpu-validate", "other.yaml") == 1


def test_the_configuration_of_the_page_names_the_hooks() -> None:
    (text,) = [
        text
        for language, text in blocks(ROOT / "docs/how-to/ci.md")
        if ".pre-commit-config.yaml" in language
    ]
    (repository,) = yaml.safe_load(text)["repos"]
    assert {hook["id"] for hook in repository["hooks"]} == set(HOOKS)
