"""`renamed_from`, as it is read."""

from collections.abc import Callable

import pytest

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.config.renames import renames_of
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from tests.support import some

RUN = "gpus: 1, type: CPU, command: [echo, hi]"


def project(runs: str, jobs: str = "") -> str:
    return f"project: {{name: demo}}\nruns:\n{runs}" + (f"jobs:\n{jobs}" if jobs else "")


def renamed(loaded: Loaded) -> list[tuple[str, str]]:
    return [(str(one.before), str(one.address)) for one in renames_of(loaded)]


@pytest.mark.parametrize("text", ["old", "run.old"])
def test_a_run_goes_with_its_own_environment(good: Callable[..., Loaded], text: str) -> None:
    loaded = good(project(f"  new: {{{RUN}, renamed_from: {text}}}\n"), "sgpu.yml")
    assert renamed(loaded) == [("run.old", "run.new"), ("environment.old", "environment.new")]
    assert some(renames_of(loaded)[0].place).line == 3


def test_an_environment_that_runs_share_stays(good: Callable[..., Loaded]) -> None:
    text = "environments: {old: {python: '3.11', dependencies: [six]}}\n" + project(
        f"  new: {{{RUN}, renamed_from: old, env: {{use: old}}}}\n"
    )
    assert renamed(good(text, "sgpu.yml")) == [("run.old", "run.new")]


def test_the_cells_of_a_matrix_are_one_rename(good: Callable[..., Loaded]) -> None:
    text = "name: new\nrenamed_from: old\ngpus: 1\ntype: CPU\nentrypoint: a.py:main\n"
    loaded = good(f"{text}matrix: {{n: [1, 2]}}\n")
    assert renamed(loaded)[0] == ("run.old", "run.new")
    assert len(loaded.runs) == 2


def test_a_job_is_renamed(good: Callable[..., Loaded]) -> None:
    job = "  daily: {run: train, schedule: 0 0 2 * * ?, renamed_from: job.nightly}\n"
    loaded = good(project(f"  train: {{{RUN}}}\n", job), "sgpu.yml")
    assert renamed(loaded) == [("job.nightly", "job.daily")]


def test_it_is_no_part_of_what_a_run_is_and_changes_the_digest_of_the_file(
    good: Callable[..., Loaded],
) -> None:
    with_it = good(project(f"  new: {{{RUN}, renamed_from: old}}\n"), "sgpu.yml")
    without = good(project(f"  new: {{{RUN}}}\n"), "sgpu.yml")
    assert with_it.runs[0].spec == without.runs[0].spec
    assert with_it.config_digest != without.config_digest


def test_an_old_name_that_is_not_given_is_none(good: Callable[..., Loaded]) -> None:
    runs = "".join(f"  {name}: {{{RUN}, renamed_from: null}}\n" for name in "ab")
    assert renamed(good(project(runs), "sgpu.yml")) == []


@pytest.mark.parametrize(
    ("runs", "code", "line"),
    [
        (f"  old: {{{RUN}}}\n  new: {{{RUN}, renamed_from: old}}\n", "renamed_and_declared", 4),
        (
            f"  a: {{{RUN}, renamed_from: old}}\n  b: {{{RUN}, renamed_from: run.old}}\n",
            "renamed_twice",
            4,
        ),
    ],
)
def test_a_name_that_is_not_free_is_refused_by_its_place(
    bad: Callable[..., tuple[Diagnostic, ...]], runs: str, code: str, line: int
) -> None:
    (found,) = bad(project(runs), "sgpu.yml")
    assert found.place is not None
    assert (found.code, found.place.line) == (code, line)
    assert found.hint
    assert found.related


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sgpu.yml", project(f"  new: {{{RUN}, renamed_from: new}}\n")),
        ("run.yaml", "name: new\ngpus: 1\nrenamed_from: run.new\ntype: CPU\ncommand: [echo, hi]\n"),
    ],
)
def test_the_name_that_a_run_has_is_not_its_old_one(
    bad: Callable[..., tuple[Diagnostic, ...]], file: str, text: str
) -> None:
    (found,) = bad(text, file)
    assert found.summary == "`run.new` is renamed from the name that it has"
    assert found.place is not None
    assert found.place.line == 3


def test_what_is_no_name_is_refused(bad: Callable[..., tuple[Diagnostic, ...]]) -> None:
    (found,) = bad(f"name: new\nrenamed_from: 'run.a b'\n{RUN.replace(', ', chr(10), 2)}\n")
    assert found.place is not None
    assert found.place.line == 2
