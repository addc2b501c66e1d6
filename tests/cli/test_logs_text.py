import pytest

from sgpu_decl.views.logs_text import clean, prefix


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


def test_the_prefix_names_run_and_rank() -> None:
    assert prefix("train", 3) == "[train 3] "
