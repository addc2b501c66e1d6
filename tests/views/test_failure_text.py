"""What the kind of a failure says on a terminal and in a notebook."""

from dataclasses import replace
from datetime import UTC, datetime

from sgpu_decl.model.attempt_details import FailureExplanation, FirstCause
from sgpu_decl.views.failure_text import blame_words, kind_words
from sgpu_decl.views.notebook_html import status_page
from tests.views.test_status_text import FAILED

KNOWN = FirstCause(
    rank=0,
    failure="exception",
    kind="missing_package",
    summary="ModuleNotFoundError: No module named 'a<b'",
    explanation=FailureExplanation(
        blame="error",
        meaning="the package `a<b\x1b[2J` is not there",
        next_step="see `sgpu plan --files`",
        source="https://docs.python.org/3/",
    ),
)


def test_the_words_name_the_kind_the_fault_and_the_next_step() -> None:
    assert kind_words(KNOWN, lambda hint: hint.replace("--files", "--files train")) == (
        "missing_package (user error): the package `a<b\\x1b[2J` is not there\n"
        "hint: see `sgpu plan --files train`"
    )


def test_an_unknown_failure_has_no_words() -> None:
    assert kind_words(None) == ""
    assert kind_words(replace(KNOWN, kind=None, explanation=None)) == ""


def test_the_fault_is_said_in_words() -> None:
    assert [blame_words(blame) for blame in ("error", "infra", None)] == [
        "user error",
        "platform fault",
        "user error or platform fault",
    ]


def test_a_notebook_shows_them_escaped() -> None:
    now = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
    page = status_page(replace(FAILED, first_cause=KNOWN), now=now)
    assert "[missing_package] rank 0: ModuleNotFoundError" in page
    assert "missing_package (user error): the package <code>a&lt;b\\x1b[2J</code> is not" in page
    assert "hint: see <code>sgpu plan --files</code>" in page
