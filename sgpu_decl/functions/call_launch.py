"""A call from beginning to end: launched, watched, its results collected."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FrameType

from sgpu_decl.errors import Locked, StalePlan
from sgpu_decl.functions.call_follower import Phases, follow, say, stopped_by_interrupt, tell_plan
from sgpu_decl.functions.call_limit import await_room
from sgpu_decl.functions.call_refusals import refuse_plan
from sgpu_decl.functions.call_results import result_or_raise
from sgpu_decl.functions.call_settings import Settings
from sgpu_decl.functions.prepared_call import PreparedCall, prepare
from sgpu_decl.functions.running_call import DistributedFunctionCall, announce
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.plan import Plan

__all__ = ["launch", "run"]

PATIENCE = 60.0  # seconds that others may change the state under us


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


def launch(prepared: PreparedCall, launched: list[AttemptRef]) -> Plan:
    """Plan, and launch; returns the plan once the ranks are on their way.

    If other calls made the plan stale meanwhile, it plans again.

    Args:
        launched: gets the attempt, before an interrupt can come.
    """
    session = prepared.session
    deadline = time.monotonic() + PATIENCE
    while True:
        planned = prepared.plan()
        plan = session.with_complete_hints(planned.plan)
        error = refuse_plan(plan, prepared.origin, prepared.settings.parameters)
        if error is not None:
            raise error
        if await_room(session, plan, prepared.call.limit):
            deadline = time.monotonic() + PATIENCE
            continue
        staged, noticed = session.stage(planned, progress=Phases())
        for finding in noticed:
            say(f"{finding.severity}: {finding.summary}")
        try:
            with _interrupts_later() as interrupted:
                call = replace(prepared.call, keep_warm=staged.keep_warm)
                applied = session.apply(staged, call=call)
                launched += applied.launched
        except (StalePlan, Locked):
            if interrupted():
                raise KeyboardInterrupt from None
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
            continue
        if applied.failed:
            raise applied.failed[0][1]
        if interrupted():
            raise KeyboardInterrupt
        return plan


@contextmanager
def _interrupts_later() -> Iterator[Callable[[], bool]]:
    """Delay interrupts during a launch; the value says whether one came."""
    interrupted = False

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  the signal module's signature
        nonlocal interrupted
        interrupted = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # interrupts go to the main thread
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, before)
