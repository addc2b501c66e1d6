"""`enabled` and `targets` of runs and jobs: what a target leaves out."""

from typing import Any

import pytest

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from tests.config.conftest import including, outcome
from tests.reading import clean

PROJECT = """\
project: {name: p}
defaults: {run: {gpus: 1, type: CPU, command: x}}
targets: {dev: {}, prod: {runs: {c: {enabled: true}}}, canary: {extends: prod}}
runs:
  a: {}
  b: {targets: [prod]}
  c: {enabled: false}
jobs:
  nightly: {run: b, schedule: 0 0 2 * * ?, targets: [prod, default]}
"""


def read(target: str | None, text: str = PROJECT, **options: Any) -> Loaded:
    return clean(outcome(text, "sgpu.yml", target=target, **options))


def names(loaded: Loaded) -> tuple[str, str]:
    declared = [str(one.address) for one in loaded.runs]
    declared += [str(one.address) for one in loaded.jobs]
    return " ".join(declared), " ".join(map(str, loaded.left_out))


def refused(text: str, target: str | None = None) -> tuple[Diagnostic, ...]:
    _, findings = outcome(text, "sgpu.yml", target=target)
    return findings


def test_a_target_has_what_names_it_and_what_names_none() -> None:
    assert names(read("prod")) == ("run.a run.b run.c job.nightly", "")
    assert names(read("dev")) == ("run.a", "run.b run.c job.nightly")
    # a target that extends another one is not that one, and has the overrides
    assert names(read("canary")) == ("run.a run.c", "run.b job.nightly")


def test_without_a_target_it_is_the_target_default() -> None:
    text = PROJECT.replace("b: {targets: [prod]}", "b: {targets: [default]}")
    assert names(read(None, text)) == ("run.a run.b job.nightly", "run.c")


def test_the_fields_change_no_spec() -> None:
    plain = PROJECT.replace("b: {targets: [prod]}", "b: {}").replace(
        ", targets: [prod, default]", ""
    )
    ours, theirs = read("prod"), read("prod", plain)
    assert [one.spec for one in ours.runs] == [one.spec for one in theirs.runs]
    assert [one.spec for one in ours.jobs] == [one.spec for one in theirs.jobs]
    assert ours.config_digest == theirs.config_digest


def test_defaults_and_references_may_decide() -> None:
    text = PROJECT.replace("command: x}}", "command: x, targets: [dev]}}").replace(
        "c: {enabled: false}", "c: {enabled: '${var.large}'}\nvariables: {large: false}"
    )
    text = text.replace("c: {enabled: '$", "c: {targets: [dev], enabled: '$")
    text = text.replace("jobs:\n", "jobs:\n  none: {enabled: false}\n")
    assert names(read("dev", text)) == ("run.a", "run.b run.c job.none job.nightly")
    given = read("dev", text, variables=[("large", "true")])
    assert names(given)[0] == "run.a run.c"


def test_what_is_left_out_is_not_checked() -> None:
    text = PROJECT.replace("b: {targets: [prod]}", "b: {targets: [prod], gpus: many}")
    assert refused(text, "dev") == ()
    assert [one.code for one in refused(text, "prod")] == ["wrong_type"]


def test_a_run_or_job_cannot_name_what_is_left_out() -> None:
    text = PROJECT.replace("a: {}", "a: {after: [b]}").replace(", targets: [prod, default]", "")
    job, run = sorted(refused(text, "dev"), key=lambda one: one.summary)[::-1]
    assert (job.code, run.code) == ("run_left_out", "run_left_out")
    assert "`jobs.nightly.run` names `b`, which the target `dev` leaves out" in (
        job.summary, run.summary
    )  # fmt: skip
    assert {str(one.related[0].place) for one in (job, run)} == {"sgpu.yml:6:3"}
    assert refused(text, "prod") == ()


def test_the_old_name_of_a_run_is_left_out_with_it() -> None:
    text = PROJECT.replace("b: {targets: [prod]}", "b: {targets: [prod], renamed_from: run.old}")
    assert names(read("dev", text))[1] == "run.b run.old run.c job.nightly"


def test_a_run_file_has_enabled_and_its_targets_decide() -> None:
    text = "name: a\ngpus: 1\ntype: CPU\ncommand: x\nenabled: false\n"
    text += "targets: {prod: {enabled: true}}\n"
    assert names(clean(outcome(text))) == ("", "run.a")
    assert names(clean(outcome(text, target="prod"))) == ("run.a", "")
    project = "project: {name: p}\ninclude: [a.yml]\n"
    files = including({"a.yml": text})
    assert names(read("prod", project, read_included=files)) == ("run.a", "")
    assert names(read(None, project, read_included=files)) == ("", "run.a")


@pytest.mark.parametrize(
    ("field", "code", "hint"),
    [
        ("enabled: maybe", "wrong_type", "write `enabled: false`"),
        ("enabled: 'false'", "wrong_type", "write `enabled: false`"),
        ("enabled: [dev]", "wrong_type", "write `enabled: false`"),
        ("targets: prod", "wrong_type", "write `targets: [prod]`"),
        ("targets: {prod: {gpus: 8}}", "wrong_type", "write `targets: [prod]`"),
        ("targets: [prd]", "undeclared_target", "did you mean `prod`?"),
        ("targets: ['${var.none}']", "unknown_reference", "declare it"),
    ],
)
def test_wrong_values_are_named(field: str, code: str, hint: str) -> None:
    (finding,) = refused(PROJECT.replace("a: {}", f"a: {{{field}}}"), "prod")
    assert finding.code == code
    assert hint in (finding.hint or "")
