"""Tracebacks as a user needs them: the frames of their own program, and none of ours."""

from collections.abc import Iterator
from types import TracebackType


def caller_traceback(trace: TracebackType | None) -> TracebackType | None:
    """The traceback of an error that we raise, up to the line that called us."""
    frames = []
    for one in _frames(trace):
        if _is_ours(one):
            break
        frames.append(one)
    return _linked(frames)


def without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback of the cause of such an error: it may have passed through the user's code on
    its way to us."""
    return _linked([one for one in _frames(trace) if not _is_ours(one)])


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_ours(trace: TracebackType) -> bool:
    name = str(trace.tb_frame.f_globals.get("__name__"))
    return name.partition(".")[0] == "sgpu_decl"


def _linked(frames: list[TracebackType]) -> TracebackType | None:
    linked = None
    for one in reversed(frames):
        linked = TracebackType(linked, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return linked
