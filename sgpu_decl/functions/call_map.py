"""A sweep: one call for each set of arguments, side by side."""

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from sgpu_decl.errors import InvalidInput, RunFailed, SgpuError
from sgpu_decl.functions.call_arguments import readable_arguments
from sgpu_decl.functions.call_follower import follow_all, say, stopped_by_interrupt, tell_plan
from sgpu_decl.functions.call_launch import launch
from sgpu_decl.functions.call_results import CallRow, CallTable, result_or_raise
from sgpu_decl.functions.call_settings import Settings, positive
from sgpu_decl.functions.prepared_call import PreparedCall, prepare
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.run_table import RunTable

if TYPE_CHECKING:
    from sgpu_decl.api import Session

_EXAMPLE = "write `map([{'lr': 0.1}, {'lr': 0.01}])`"


def run_map(
    function: Callable[..., object],
    settings: Settings,
    calls: Iterable[Mapping[str, object]],
    max_parallel: int | None,
) -> CallTable[object]:
    """Call a function once for each set of arguments; see `DistributedFunction.map`."""
    if settings.run_async:
        raise InvalidInput(
            "`map` waits for its calls, and cannot be combined with `run_async=True`",
            hint="leave `run_async` out, or start each call with `.distributed(...)`",
            code="wrong_parameter",
        )
    if max_parallel is not None:
        settings = replace(settings, max_parallel=positive("max_parallel", max_parallel))
    prepared = _prepared(function, settings, _listed(calls))
    if not prepared:
        return CallTable((), RunTable(rows=()))
    launched: list[AttemptRef] = []
    with ExitStack() as stack:
        for call, _ in prepared:
            stack.enter_context(call.session)
        session = prepared[0][0].session
        for note in session.notes:
            say(note)
        with stopped_by_interrupt(session, launched):
            refusal = _launch_all([call for call, _ in prepared], launched)
            views = follow_all(session, launched)
        given = [arguments for _, arguments in prepared]
        rows = [_row(session, view, one) for view, one in zip(views, given, strict=False)]
        rows += [CallRow(arguments=one, error=refusal) for one in given[len(rows) :]]
        return CallTable(rows, _shown(session, launched, given))


def _launch_all(calls: Sequence[PreparedCall], launched: list[AttemptRef]) -> SgpuError | None:
    """Launch the calls one after the other; return the error that ended that half-way.

    Raises:
        SgpuError: the first call cannot be launched.
    """
    for call in calls:
        try:
            plan = launch(call, launched)
        except SgpuError as error:
            if not launched:
                raise
            say(f"{len(launched)} of {len(calls)} calls were launched: {error.message}")
            return error.with_traceback(None)
        if len(launched) == 1:
            tell_plan(plan)
    return None


def _listed(calls: object) -> Sequence[object]:
    if isinstance(calls, Iterable):
        return list(calls)
    raise InvalidInput(
        f"`map` takes a list of dictionaries, not `{reprlib.repr(calls)}`",
        hint=_EXAMPLE,
        code="wrong_parameter",
    )


def _prepared(
    function: Callable[..., object], settings: Settings, calls: Sequence[object]
) -> list[tuple[PreparedCall, Mapping[str, object]]]:
    """All calls, checked and pickled, so that a mistake in one of them is known before the first is
    launched."""
    prepared = []
    for number, arguments in enumerate(calls, 1):
        if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
            raise InvalidInput(
                f"`map` takes dictionaries of arguments, and item {number} is "
                f"`{reprlib.repr(arguments)}`",
                hint=_EXAMPLE,
                code="wrong_parameter",
            )
        try:
            one = prepare(function, settings, (), arguments)
        except InvalidInput as error:
            error.add_note(f"in item {number} of {len(calls)}")
            raise
        prepared.append((replace(one, call=replace(one.call, sweep=True)), arguments))
    return prepared


def _row(session: "Session", view: AttemptView, arguments: Mapping[str, object]) -> CallRow[object]:
    result, error = None, None
    try:
        result = result_or_raise(session, view)
    except BaseException as failure:
        if not (isinstance(failure, SgpuError) or isinstance(failure.__cause__, RunFailed)):
            raise  # an interrupt of this process or a fault of ours, not what happened to the call
        error = failure.with_traceback(None)
    started, ended = view.started_at, view.ended_at
    return CallRow(
        arguments=arguments,
        attempt=str(view.ref),
        state=view.state,
        seconds=(ended - started).total_seconds() if started and ended else None,
        result=result,
        error=error,
    )


def _shown(
    session: "Session", refs: Sequence[AttemptRef], arguments: Sequence[Mapping[str, object]]
) -> RunTable:
    """The table of the attempts with the arguments as axes."""
    table = session.runs.table(refs)
    rows = zip(table.rows, arguments, strict=False)  # not all were launched
    return replace(
        table, rows=tuple(replace(row, axes=readable_arguments(given)) for row, given in rows)
    )
