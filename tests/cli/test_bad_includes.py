"""Bad `include` blocks and files, as the commands that read them say it: with and without a target
that the file names by itself."""

import os
from collections.abc import Callable
from itertools import product

import pytest

from tests.cli.conftest import Shell

RUN = "{gpus: 1, type: CPU, command: 'true', mlflow: {enabled: false}}"
FILE = "name: eval\ngpus: 1\ntype: CPU\ncommand: 'true'\nmlflow: {enabled: false}\n"
TARGETS = "targets: {dev: {default: true}, prod: {}}\n"


def included(text: str) -> Callable[[Shell], str]:
    """A project that includes a file with this text."""

    def write(shell: Shell) -> str:
        shell.write("runs/train.yml", text)
        return "runs/train.yml"

    return write


def pattern(text: str) -> Callable[[Shell], str]:
    return lambda _: text


def link_out(shell: Shell) -> str:
    outside = shell.folder.parent / "outside.yml"
    outside.write_text(f"runs: {{train: {RUN}}}\n")
    (shell.folder / "out.yml").symlink_to(outside)
    return "out.yml"


def many_files(shell: Shell) -> str:
    shell.write("many/0.yml", "{}")
    for number in range(1, 2_001):
        os.link(shell.folder / "many/0.yml", shell.folder / f"many/{number}.yml")
    return "many/*.yml"


def two_runs(shell: Shell) -> str:
    shell.write("runs/a.yml", f"runs: {{train: {RUN}}}\n")
    shell.write("runs/b.yml", f"runs: {{train: {RUN}}}\n")
    return "runs/*.yml"


def folder(shell: Shell) -> str:
    (shell.folder / "runs").mkdir()
    return "runs"


def not_utf8(shell: Shell) -> str:
    (shell.folder / "latin.yml").write_bytes(b"runs: {tr\xe4in: 1}\n")
    return "latin.yml"


def saved_plan(shell: Shell) -> str:
    shell.write("good/sgpu.yml", "project: {name: p}\nruns: {}\n")
    shell.done("plan", "good/sgpu.yml", "--out", "saved.json")
    return "saved.json"


BAD = {
    "no YAML": (included("runs: [\n"), "yaml_syntax"),
    "a list": (included("- a\n- b\n"), "not_a_mapping"),
    "binary": (included("runs: \0\n"), "forbidden_character"),
    "not UTF-8": (not_utf8, "not_utf8"),
    "an include of its own": (included("include: [more.yml]\n"), "root_only"),
    "a default of its own": (included("targets: {prod: {default: true}}\n"), "root_only"),
    "a run without a name": (included(FILE.partition("\n")[2]), "missing_key"),
    "a scalar for a target": (included("targets: {dev: 3}\n"), "declared_twice"),
    "the same run twice": (two_runs, "declared_twice"),
    "a literal that is missing": (pattern("missing.yml"), "include_unmatched"),
    "a way out": (pattern("../other.yml"), "include_invalid"),
    "a way into git": (pattern(".git/x.yml"), "include_invalid"),
    "a reference": (pattern("${target.name}.yml"), "include_invalid"),
    "a link out": (link_out, "include_invalid"),
    "a folder": (folder, "include_invalid"),
    "a saved plan": (saved_plan, "include_invalid"),
    "too many files": (many_files, "include_too_many"),
}


@pytest.mark.parametrize(("write", "code"), BAD.values(), ids=BAD)
def test_each_command_names_what_is_wrong_with_an_include(
    write: Callable[[Shell], str], code: str, sgpu: Shell
) -> None:
    named = write(sgpu)
    sgpu.write("sgpu.yml", f"project: {{name: p}}\ninclude: ['{named}']\n{TARGETS}")
    for words, target in product(
        (("validate",), ("validate", "--strict", "-o", "github"), ("plan",)),
        ((), ("-t", "dev"), ("-t", "prod"), ("-t", "default")),
    ):
        refused = sgpu.here(*words, *target)
        assert refused.code == 1, refused
        assert code in refused.out + refused.err, (words, target, refused)


def test_what_is_wrong_with_an_include_is_said_once_for_all_targets(sgpu: Shell) -> None:
    sgpu.write("sgpu.yml", f"project: {{name: p}}\ninclude: [missing.yml]\n{TARGETS}")
    assert sgpu.here("validate").err.count("include_unmatched") == 1


@pytest.mark.parametrize("include", ["runs.yml", "{a: b}", "[[a.yml]]", "[null]"])
def test_an_include_that_is_no_list_of_text(include: str, sgpu: Shell) -> None:
    sgpu.write("sgpu.yml", f"project: {{name: p}}\ninclude: {include}\n{TARGETS}")
    for command, target in product(("validate", "plan"), ((), ("-t", "prod"))):
        refused = sgpu.here(command, *target)
        assert refused.code == 1, refused
        assert "wrong_type" in refused.err
