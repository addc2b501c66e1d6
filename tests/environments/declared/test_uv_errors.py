"""Words of uv 0.8 and of uv 0.13, and what is made of them."""

from typing import Any

import pytest

from sgpu_decl.environments.declared.uv_errors import read_report, read_warnings

OLD = """\
  \u00d7 No solution found when resolving dependencies:
  ╰─▶ Because nosuch was not found in the package registry and you require
      nosuch, we can conclude that your requirements are unsatisfiable.
"""
NEW = """\
error: No solution found when resolving dependencies
  cause: Because nosuch was not found in the package registry and you require nosuch
"""
BUILD = """\
Resolved 1 package in 101ms
   Building cext==1.0
error: Failed to build `cext==1.0`
  cause: The build backend returned an error
         cext.c:1:1: error: expected declaration
"""


def _codes(words: str) -> Any:
    return read_report(words, python="3.11").code


@pytest.mark.parametrize("words", [OLD, NEW])
def test_both_forms_of_an_error_are_read(words: str) -> None:
    found = read_report(words, python="3.11")
    assert (found.code, found.summary) == (
        "package_not_found",
        "no index has a package `nosuch`",
    )
    assert "╰" not in found.message
    assert "error:" not in found.message


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (BUILD, "build_failed"),
        ("error: Failed to extract\n  cause: No space left on device (os error 28)", "disk_full"),
        ("error: Hash mismatch for `a==1`\n  Failed to fetch: `https://x`", "hash_mismatch"),
        ("error: Failed to fetch: `https://x.org/a`\n  Caused by: timed out", "index_unreachable"),
        ("error: something new\n  cause: of all things", "uv_failed"),
    ],
)  # fmt: skip
def test_what_is_known_has_a_code(words: str, code: str) -> None:
    assert _codes(words) == code


def test_what_is_not_known_is_passed_on_whole() -> None:
    assert read_report("error: something new", python="3.11").message == (
        "uv failed\nuv says:\n  something new"
    )


def test_a_compiler_that_says_much_is_cut_in_the_middle() -> None:
    message = read_report(BUILD + "x" * 200_000 + "\nthe end", python="3.11").message
    assert len(message) < 5000
    assert message.endswith("the end")
    assert "`cext==1.0`" in message


def test_warnings_stand_apart_from_errors_and_from_uvs_own_affairs() -> None:
    words = "warning: The `--pylock` option is experimental and may change without warning. Pass\n"
    words += "Resolved 1 package\nwarning: `a==1` is yanked\nerror: no"
    assert read_warnings(words) == ("`a==1` is yanked",)
    assert read_report(words, python="3.11").detail == "no"
