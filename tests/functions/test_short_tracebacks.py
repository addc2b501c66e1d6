"""Errors that a caller sees have the caller's lines, and no frames of sgpu."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from sgpu_decl import distributed
from sgpu_decl.api import Location, Session
from sgpu_decl.caller_traceback import caller_traceback
from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.short_tracebacks import short_tracebacks


@distributed(gpus=1, gpu_type="CPU")
def train(data: object = None) -> None:
    raise KeyError("loss")


class Stubborn:
    def __reduce__(self) -> NoReturn:
        raise RuntimeError("not me")


def error_of(call: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011  all kinds
        call()
    return caught.value


def lines_of(error: BaseException) -> list[str]:
    """The source lines of its own traceback, from the lambda of a test on."""
    return [frame.line or "" for frame in traceback.extract_tb(error.__traceback__)[2:]]


def test_a_wrong_call_is_its_line_and_the_message() -> None:
    for call in (
        lambda: train.distributed(dato=1),
        lambda: train.plan(dato=1),
        lambda: train.with_overrides(gpu_type="A1000"),
        lambda: distributed(gpu_type="A1000"),
        lambda: distributed(gpus=1)(5),  # type: ignore[arg-type]
        lambda: train(),
    ):
        error = error_of(call)
        assert isinstance(error, InvalidInput)
        assert lines_of(error) == [], error  # the lambda itself was the last frame
    assert "did you mean `data`?" in str(error_of(lambda: train.plan(dato=1)).__notes__)


def test_the_exception_of_a_rank_ends_at_the_call_and_keeps_its_cause() -> None:
    error = error_of(lambda: train.distributed())
    assert isinstance(error, KeyError)
    assert lines_of(error) == []
    whole = "".join(traceback.format_exception(error))
    assert 'raise KeyError("loss")' in whole
    assert "direct cause" in whole
    assert "sgpu_decl/functions" not in whole


def test_a_cause_keeps_the_lines_of_the_user() -> None:
    cause = error_of(lambda: train.plan(Stubborn())).__cause__
    names = [frame.name for frame in traceback.extract_tb(cause.__traceback__)]
    assert names[-1] == "__reduce__"
    assert not any("sgpu_decl" in str(frame) for frame in traceback.extract_tb(cause.__traceback__))


def test_a_fault_of_ours_keeps_its_frames() -> None:
    @short_tracebacks
    def call() -> None:
        raise AssertionError

    assert "call" in [frame.name for frame in traceback.extract_tb(error_of(call).__traceback__)]


def test_the_error_of_a_file_has_its_findings(project: Path) -> None:
    (project / "run.yaml").write_text("name: x\ngpuss: 2\ntype: CPU\nentrypoint: train.py\n")
    with Session.open(Location(file=Path("run.yaml"))) as session:
        error = error_of(session.plan)
    assert (
        str(error) == "`run.yaml` is not valid\n"
        "run.yaml:2:1: error: unknown key `gpuss`; did you mean `gpus`?"
    )
    assert not hasattr(error, "__notes__")  # a traceback shows them once
    assert traceback.extract_tb(caller_traceback(error.__traceback__))[-1].filename == __file__
