"""A call from beginning to end: launched, watched, its results collected."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import FrameType

from sgpu_decl.api import Applied, PlanOptions, Prepared, RolloutEvents
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import StalePlan, StateMoved
from sgpu_decl.functions.call_errors import refuse_plan
from sgpu_decl.functions.call_follower import Phases, follow, say, stopped_by_interrupt, tell_plan
from sgpu_decl.functions.call_results import result_or_raise
from sgpu_decl.functions.call_settings import Settings
from sgpu_decl.functions.prepared_call import (
    PreparedCall,
    await_room,
    prepare,
    with_size_of_packages,
)
from sgpu_decl.functions.running_call import DistributedFunctionCall, announce
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.plan import Plan
from sgpu_decl.model.step_progress import Progress, Quiet


def run(
    function: Callable[..., object],
    settings: Settings,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> object:
    """Run a function on its ranks, or on a Ray cluster; see `DistributedFunction.distributed`."""
    prepared = prepare(function, settings, args, kwargs)
    session = prepared.session
    for note in session.notes:
        say(note)
    launched: list[AttemptRef] = []
    with ExitStack() as stack:
        stack.enter_context(session)
        with stopped_by_interrupt(session, launched):
            tell_plan(launch(prepared, launched))
            (ref,) = launched
            if settings.run_async:
                announce(session, ref)
                stack.pop_all()  # the session stays open: the call uses it
                return DistributedFunctionCall[object](session, ref)
            view = follow(session, ref)
        return result_or_raise(session, view)


def launch(call: PreparedCall, launched: list[AttemptRef]) -> Plan:
    """Plan, and launch; returns the plan once the ranks are on their way.

    Args:
        launched: gets the attempt, before an interrupt can come.
    """
    events = _CallEvents(call, launched)
    prepared, applied = call.session.roll_out(PlanOptions(), events, call=call.call)
    if applied.failed:
        raise applied.failed[0][1]
    return with_size_of_packages(prepared.plan)


class _CallEvents(RolloutEvents):
    """Prints phases and warnings. An interrupt during a launch comes after it."""

    def __init__(self, call: PreparedCall, launched: list[AttemptRef]) -> None:
        self._call, self._launched = call, launched
        self._interrupted = False

    def planned(self, prepared: Prepared, *, same: bool) -> None:  # noqa: ARG002  all are refused alike
        call = self._call
        plan = call.session.with_complete_hints(prepared.plan)
        error = refuse_plan(plan, call.origin, call.settings.parameters)
        if error is not None:
            raise error
        if await_room(call.session, plan, call.call.limit):
            raise StateMoved("other calls have ended since this plan")

    def staging(self) -> AbstractContextManager[Progress]:
        return nullcontext(Phases())

    def noticed(self, findings: tuple[Diagnostic, ...]) -> None:
        for finding in findings:
            say(f"{finding.severity}: {finding.summary}")

    @contextmanager
    def launching(self) -> Iterator[Progress]:
        if threading.current_thread() is not threading.main_thread():
            yield Quiet()  # interrupts go to the main thread
            return
        before = signal.signal(signal.SIGINT, self._note)
        try:
            yield Quiet()
        finally:
            signal.signal(signal.SIGINT, before)
        self.waiting()

    def waiting(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def moved(self, why: StalePlan) -> None:  # noqa: ARG002  calls do not tell it
        self.waiting()

    def applied(self, applied: Applied) -> None:
        self._launched += applied.launched

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  the signal module's signature
        self._interrupted = True
