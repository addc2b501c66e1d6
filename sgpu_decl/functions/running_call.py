"""A call that goes on while the caller does something else, and its status."""

import asyncio
import shlex
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar, cast

from sgpu_decl.api import Session
from sgpu_decl.functions.call_follower import follow, say, stopped_by_interrupt
from sgpu_decl.functions.call_results import result_or_raise
from sgpu_decl.functions.caller import call_location
from sgpu_decl.functions.short_tracebacks import short_tracebacks
from sgpu_decl.model.argument_checks import checked_calls
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.views.notebook_html import status_page
from sgpu_decl.views.rank_output_text import clean_lines
from sgpu_decl.views.status_json import status_object

R = TypeVar("R")
REST = 0.05  # seconds between two looks of a task that awaits a call


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """`state` is one of `queued staging starting running stopping succeeded failed cancelled lost`;
    `run` is all that is known, as `sgpu status -o json` has it."""

    view: AttemptView

    @property
    def run_id(self) -> str:
        return str(self.view.ref)

    @property
    def state(self) -> AttemptState:
        return self.view.state

    @property
    def run(self) -> Mapping[str, Json]:
        return status_object(self.view)

    @property
    def active(self) -> bool:
        return self.state.active

    def __str__(self) -> str:
        return f"{self.run_id} {self.state}"

    def _repr_html_(self) -> str:
        return status_page(self.view, now=datetime.now(UTC))


@checked_calls
class DistributedFunctionCall(Generic[R]):
    """A call of a function on ranks that goes on by itself, also when this process has ended.

    `R` is what `result()` returns, and `await call` too: the list of the ranks' values, or of a
    function with `@ray_launch` what the function returned.
    """

    def __init__(self, session: "Session", ref: AttemptRef) -> None:
        self._session = session
        self._ref = ref
        self._force: Callable[[], None] = lambda: None  # once it was asked to stop

    @classmethod
    @short_tracebacks
    def from_run_id(
        cls, run_id: str, *, project: str | Path | None = None, target: str | None = None
    ) -> "DistributedFunctionCall[R]":
        """Find a call again, in another process or after a restart of the kernel.

        Args:
            run_id: such as `train#8`, or `train` for its latest call.
            project: the project folder; that of this script or notebook by default.
            target: the target that it was called for.

        Raises:
            NotFound: there is no such call.
        """
        session = Session.open(call_location(project=project, target=target))
        return cls(session, session.runs.find_one(run_id))

    @property
    def run_id(self) -> str:
        return str(self._ref)

    @property
    @short_tracebacks
    def status(self) -> RunStatus:
        (view,) = self._session.runs.describe([self._ref])
        return RunStatus(view=view)

    @short_tracebacks
    def wait(self, timeout: float | None = None) -> RunStatus:
        """Wait until it has ended, for so many seconds at most.

        Raises:
            OutOfTime: it goes on.
        """
        self._session.runs.wait([self._ref], timeout, self._force)
        self._session.record_ended()
        return self.status

    @short_tracebacks
    def result(self, *, logs: bool = False, timeout: float | None = None) -> R:
        """Wait, and return what every rank returned, in rank order, or what the driver of a Ray
        cluster returned.

        Args:
            logs: show what rank 0 prints meanwhile. An interrupt then cancels the call.
            timeout: in seconds; not with `logs`.

        Raises:
            BaseException: the exception of the rank that failed first, with a `RankFailed`, which
                holds its rank and traceback, as the cause.
            RankFailed: it failed otherwise, or was cancelled.
            OutOfTime: it goes on.
        """
        if logs:
            with stopped_by_interrupt(self._session, [self._ref]):
                view = follow(self._session, self._ref)
        else:
            view = self.wait(timeout).view
        return cast("R", result_or_raise(self._session, view))

    @short_tracebacks
    def logs(self, rank: int | None = 0) -> str:
        """What a rank, or with None every rank, has printed so far, stdout and stderr.

        Raises:
            NotFound: it was deleted.
        """
        ranks = None if rank is None else (rank,)
        lines = self._session.runs.logs(self._ref, ranks=ranks, follow=False)
        return "".join(
            clean_lines(
                line.text, "" if rank is not None or line.rank is None else f"[{line.rank}] "
            )
            + "\n"
            for line in lines
            if line is not None
        )

    @short_tracebacks
    def cancel(self) -> None:
        """Ask it to stop; harmless when it has ended. Whoever waits for it then ends it by force if
        its supervisor is silent for too long, as `sgpu cancel` does."""
        self._session.runs.cancel(self._ref)
        self._force = self._session.runs.forced_stops([self._ref], say)

    def __await__(self) -> Generator[object, None, R]:
        return self._awaited().__await__()

    async def _awaited(self) -> R:
        with short_tracebacks:
            while self._session.runs.status(self._ref).state.active:
                self._force()
                await asyncio.sleep(REST)
            return self.result()

    def __repr__(self) -> str:
        return f"<DistributedFunctionCall {self.status}>"

    def _repr_html_(self) -> str:
        return self.status._repr_html_()


def announce(session: "Session", ref: AttemptRef) -> None:
    logs = session.complete(f"`sgpu logs -f {shlex.quote(str(ref))}`")
    say(f"{ref} launched; see `.status`, `.result()`, {logs}")
