from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.excerpts import excerpt
from sgpu_decl.diagnostics.place import Place


def found(line: int, column: int, **more: Any) -> Diagnostic:
    return Diagnostic(
        code="unknown_key",
        summary="unknown key `gpu`",
        place=Place("run.yaml", line, column),
        **more,
    )


def test_the_line_is_shown_with_a_caret_and_the_hint() -> None:
    text = excerpt(found(2, 3, hint="did you mean `gpus`?"), "name: a\n  gpu: 4\n")
    assert text.split("\n") == [
        "error[unknown_key]: unknown key `gpu`",
        "  --> run.yaml:2:3",
        "   |",
        " 2 |   gpu: 4",
        "   |   ^",
        "hint: did you mean `gpus`?",
    ]


def test_both_places_of_a_duplicate_are_shown() -> None:
    related = (Related(place=Place("run.yaml", 1, 1), note="first written here"),)
    text = excerpt(found(2, 1, related=related), "a: 1\na: 2\n")
    assert "note: first written here\n  --> run.yaml:1:1\n   |\n 1 | a: 1\n   | ^" in text


def test_without_a_place_only_the_words_are_shown() -> None:
    text = excerpt(Diagnostic(code="x", summary="no file"), "")
    assert text == "error[x]: no file"


def test_an_option_of_the_command_line_has_no_lines() -> None:
    diagnostic = Diagnostic(code="x", summary="s", place=Place("--set gpus", 1, 1))
    assert excerpt(diagnostic, "name: a\n") == "error[x]: s\n  --> --set gpus"


def test_a_long_line_is_cut_around_the_caret() -> None:
    text = excerpt(found(1, 5001), "x" * 5000 + "HERE" + "y" * 1_000_000)
    line, caret = text.split("\n")[3:5]
    assert len(line) < 120
    assert line[caret.index("^")] == "H"


def test_control_characters_of_the_file_do_not_reach_the_terminal() -> None:
    text = excerpt(found(1, 9), "\x1b[31m\u202ex: \u009bboom")
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31m\\u202ex" in text


def test_the_caret_stands_under_its_column_past_escapes_and_wide_characters() -> None:
    text = excerpt(found(1, 4), "\x1b漢aX")
    line, caret = text.split("\n")[3:5]
    assert line == " 1 | \\x1b漢aX"
    assert caret == "   | " + " " * (4 + 2 + 1) + "^"


def test_tokens_are_masked_and_the_caret_keeps_its_value() -> None:
    token = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4"
    source = f"env: {{variables: {{A: {token}, RANK: 1}}}}"
    text = excerpt(found(1, source.index("RANK") + 1), source)
    assert token not in text
    line, caret = text.split("\n")[3:5]
    assert line[caret.index("^") :].startswith("RANK")


def test_the_inside_of_a_private_key_is_never_shown() -> None:
    source = "key: |\n  -----BEGIN PRIVATE KEY-----\n  MIIEowIBAAKCAQEA\n\tb: 1\n"
    assert "MIIE" not in excerpt(found(3, 3), source)


@given(st.text(max_size=60), st.integers(0, 9), st.integers(0, 99))
def test_any_text_and_any_place_give_an_excerpt(source: str, line: int, column: int) -> None:
    text = excerpt(found(line, column), source)
    assert text.startswith("error[unknown_key]")
    assert not any(ord(char) < 32 and char != "\n" for char in text)
