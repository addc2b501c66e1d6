import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.views.terminal import (
    Colour,
    age,
    columns,
    count,
    escape,
    hours,
    paint,
    shorten,
    size,
    wrap,
)

NOW = datetime(2026, 1, 31, tzinfo=UTC)


@given(st.text())
def test_escaped_text_is_one_harmless_line(text: str) -> None:
    shown = escape(text)
    assert len(shown.splitlines()) <= 1
    assert not any(character < " " or "\x7f" <= character <= "\x9f" for character in shown)
    shown.encode()


def test_what_is_readable_stays() -> None:
    assert escape("Größe 大 😀 a/b") == "Größe 大 😀 a/b"
    assert escape("a\tb\nc\x1b[0m\u202e") == "a\\tb\\nc\\x1b[0m\\u202e"


@given(st.text(), st.integers(1, 20))
def test_shortened_text_fits(text: str, limit: int) -> None:
    assert columns(shorten(escape(text), limit)) <= limit


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.24, "0.2 s"),
        (59, "59 s"),
        (90, "1 m 30 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (273600, "3 d 4 h"),
        (59.9, "1 m"),
    ],
)
def test_durations_have_their_two_greatest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "just now"),
        (0, "just now"),
        (59, "59 s ago"),
        (7199, "1 h ago"),
        (3 * 86400, "3 d ago"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (34_512, "34.5 kB"), (999_960, "1.0 MB"), (10**16, "10,000.0 TB")],
)
def test_sizes(number: int, text: str) -> None:
    assert size(number) == text


def test_counts_hours_and_colours() -> None:
    assert (count(1, "file"), count(9990, "file")) == ("1 file", "9,990 files")
    assert (hours(144.0), hours(0.5), hours(1024)) == ("144", "0.5", "1,024")
    assert paint("x", Colour.RED, on=False) == "x"
    assert paint("x", Colour.RED, on=True) == "\x1b[31mx\x1b[0m"


def test_a_command_stays_in_one_line_so_that_it_can_be_copied() -> None:
    text = "hint: look at it and apply it with `-y`, or save it with `sgpu plan --out run.plan`"
    assert wrap(text, None) == text
    assert wrap(text, 60).split("\n") == [
        "hint: look at it and apply it with `-y`, or save it with",
        "      `sgpu plan --out run.plan`",
    ]


@given(st.text("ab `漢", max_size=60), st.integers(20, 40))
def test_only_a_word_that_fits_no_line_is_longer_than_the_terminal(text: str, width: int) -> None:
    lines = wrap("a" + text, width).split("\n")
    assert "".join(lines).replace(" ", "") == "a" + text.replace(" ", "")
    for line in lines:
        assert columns(line) <= width or re.fullmatch(r"\s*(`[^`]*`|\S)+\s*", line)
