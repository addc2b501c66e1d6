import pytest

from sgpu_decl.views.rank_output_text import clean, clean_lines, prefix


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("tab\there", "tab\there"),
        ("Grüße 温", "Grüße 温"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[1;38:5:9mred\x1b[m", "\x1b[1;38:5:9mred\x1b[m"),
        ("\x1b[31mleft on", "\x1b[31mleft on\x1b[0m"),
        ("\x1b]0;title\x07x", "\\x1b]0;title\\x07x"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x1b[6n", "\\x1b[6n"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        (" 10%\r 50%\r100%", "100%"),
        ("100%\r", "100%"),
        ("\r", ""),
    ],
)
def test_colours_pass_and_the_rest_is_escaped(raw: str, shown: str) -> None:
    assert clean(raw) == shown


def test_each_line_of_a_text_is_cleaned_and_has_the_prefix() -> None:
    assert clean_lines("one\n\x1b[31mred\n\x1b[2Jgone\n 1%\r 2%\n\tend", "[a 0] ") == (
        "[a 0] one\n[a 0] \x1b[31mred\x1b[0m\n[a 0] \\x1b[2Jgone\n[a 0]  2%\n[a 0] \tend"
    )
    assert clean_lines("plain\n\n\tGrüße 温") == "plain\n\n\tGrüße 温"


def test_a_text_of_colours_is_what_its_lines_are() -> None:
    for text in (
        "\x1b[31mred\x1b[0m\n\x1b[1;32mon\n\x1b[mplain\x1b[00m\n\x1b[31ma\x1b[0m b\x1b[4m",
        "\x1b[31m\n\n\x1b[31m\x1b[mé\tx\n",
        "\x1b[31mred\n\x1b[2J",
    ):
        assert clean_lines(text) == "\n".join(clean(line) for line in text.split("\n"))


def test_the_prefix_names_run_and_rank() -> None:
    assert prefix("train", 3) == "[train 3] "
