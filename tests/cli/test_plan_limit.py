"""`--limit`: a plan in Markdown that fits into a comment."""

import pytest

from sgpu_decl.views.plan_markdown import LIMIT
from tests.cli.conftest import Shell

RUNS = 60
SEE = "see `sgpu show PLAN`"


@pytest.fixture
def project(sgpu: Shell) -> Shell:
    runs = "".join(
        f"  r{number}: {{gpus: 1, type: CPU, command: 'true', mlflow: {{enabled: false}}}}\n"
        for number in range(RUNS)
    )
    sgpu.write("sgpu.yml", f"project: {{name: demo}}\nruns:\n{runs}")
    return sgpu


def test_a_plan_and_a_saved_one_fit_into_the_limit(project: Shell) -> None:
    whole = project.here("plan", "-o", "markdown", "--out", "p.plan").out
    assert whole.startswith("<!-- sgpu:plan project=")
    assert all(f"`r{number}`" in whole for number in range(RUNS))
    assert project.here("show", "p.plan", "-o", "markdown", "--limit", "0").out == whole
    for command in (("plan",), ("plan", "--files"), ("show", "p.plan")):
        short = project.here(*command, "-o", "markdown", "--limit", "1000").out
        assert len(short.encode()) <= 1_000, command
        assert SEE in short
        assert short.startswith("<!-- sgpu:plan project=")
    files = project.here("plan", "--files", "-o", "markdown", "--limit", "1000").out
    assert files.endswith("more lines about files: see `sgpu plan --files`.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan", "-o", "markdown", "--limit", "999"), "`999` is no limit"),
        (("plan", "-o", "markdown", "--limit", "-1"), "`-1` is no limit"),
        (("plan", "-o", "markdown", "--limit", "64k"), "`64k` is no limit"),
        (("plan", "--limit", "5000"), "add `-o markdown`"),
        (("plan", "-o", "github", "--limit", "5000"), "add `-o markdown`"),
        (("show", "r1", "-o", "markdown", "--limit", "5000"), "`--limit` shortens a saved plan"),
    ],
)
def test_a_limit_that_means_nothing_is_refused(
    project: Shell, words: tuple[str, ...], message: str
) -> None:
    assert message in project.exits(64, *words).err


def test_the_help_names_the_limit_that_holds(project: Shell) -> None:
    assert f"{LIMIT} by default" in " ".join(project.here("plan", "--help").out.split())
