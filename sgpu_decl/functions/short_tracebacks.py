"""Tracebacks that a caller sees: without the frames of sgpu."""

from contextlib import ContextDecorator

from sgpu_decl.caller_traceback import without_own_frames
from sgpu_decl.errors import RunFailed, SgpuError


class _ShortTracebacks(ContextDecorator):
    """Around all that a public call does. Errors that have a message for the user, exceptions of
    ranks and interrupts leave it without a traceback, and their causes without frames of ours. All
    other exceptions are faults of sgpu and keep theirs.

    The end of a `with` block raises an exception again without a frame of its own. So the last
    frame that the user sees is the line that made the call.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if error is None or not _is_for_the_user(error):
            return
        error.__traceback__ = None
        while (error := error.__cause__) is not None:
            error.__traceback__ = without_own_frames(error.__traceback__)


short_tracebacks = _ShortTracebacks()


def _is_for_the_user(error: BaseException) -> bool:
    """A rank's exception has a `RankFailed` as its cause."""
    return isinstance(error, SgpuError | KeyboardInterrupt) or isinstance(
        error.__cause__, RunFailed
    )
