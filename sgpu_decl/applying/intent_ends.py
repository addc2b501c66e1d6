"""Closing the intents of launches that have ended, several in one step."""

from collections.abc import Sequence

from sgpu_decl.errors import SgpuError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.state import IntentEnd
from sgpu_decl.storing.state_store import LOST, StateWriter

_NAMED = 20  # launches in one message


class IntentEnds:
    """`error` says why some ends could not be recorded: they wait for the next step."""

    def __init__(self, writer: StateWriter) -> None:
        self.writer = writer
        self._waiting: list[IntentEnd] = []
        self.error: SgpuError | None = None

    def record(self, ends: Sequence[IntentEnd]) -> None:
        """Record ends in one step, with those that wait.

        Raises:
            SgpuError: the lock or entries are lost, with a code of `LOST`.
        """
        self._waiting += ends
        if not self._waiting:
            return
        try:
            self.writer.end(self._waiting)
        except SgpuError as error:
            if error.code in LOST:
                self._waiting.clear()
                self.error = None
                raise
            self.error = error
        else:
            self._waiting.clear()
            self.error = None

    def keep(self) -> SgpuError | None:
        """Keep on this machine the ends that wait, for its next apply.

        Returns:
            The error that says which launches are not recorded; None where none was launched, or
            where the state is one of this machine alone.
        """
        error = self.error
        refs = [end.attempt.ref for end in self._waiting if end.attempt is not None]
        assert error is not None  # noqa: S101  they wait for a reason
        try:
            kept = self.writer.keep(self._waiting)
        except SgpuError as refused:
            way_out = f"{refused.message}. The next `sgpu apply` asks the backends for these runs"
        else:
            if kept is None:
                return None
            way_out = f"kept in `{kept}`; the next `sgpu apply` here records it"
        if not refs:
            return None
        return SgpuError(
            f"{error.message}. Launched, and not recorded: {_named(refs)}",
            hint=f"launched runs continue; {way_out}",
            code="state_unreachable",
        )


def _named(refs: Sequence[AttemptRef]) -> str:
    names = ", ".join(f"`{ref}`" for ref in refs[:_NAMED])
    more = len(refs) - _NAMED
    return f"{names} and {more:,} more" if more > 0 else names
