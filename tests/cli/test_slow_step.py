"""A step that takes long says what it does."""

import pytest

from sgpu_decl.cli.progress import slow_step
from tests.support import until


def test_a_step_says_what_it_does_while_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []

    def spoke() -> bool:
        printed.append(capsys.readouterr().err)
        return "".join(printed) == "reading everything\n"

    with slow_step("reading everything", silence=0):
        until(spoke)


def test_a_short_step_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="broken"), slow_step("reading everything", silence=3600):
        raise ValueError("broken")
    assert capsys.readouterr().err == ""
