"""From a function, its settings and arguments to a plan and what its launch takes along."""

import inspect
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sgpu_decl.api import Session
from sgpu_decl.config.call_config import CAPTURED
from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.call_arguments import Bound, bind, readable_arguments
from sgpu_decl.functions.call_declaration import Declaration
from sgpu_decl.functions.call_follower import say
from sgpu_decl.functions.call_settings import Settings
from sgpu_decl.functions.caller import Parent, call_location, parent
from sgpu_decl.functions.captured_values import loaded_packages
from sgpu_decl.functions.origin import Origin, local_paths, origin_of
from sgpu_decl.functions.pickles import PicklePart, mentions, pickled
from sgpu_decl.model.address import Kind
from sgpu_decl.model.backend_kinds import kind_named
from sgpu_decl.model.call import Call, Pickled
from sgpu_decl.model.plan import Change, Plan
from sgpu_decl.views.terminal import count, size

_MOST_CALLS = 5
REST = 1.0  # seconds between two looks


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A call that can be planned and launched."""

    origin: Origin
    settings: Settings
    session: Session
    call: Call

    def plan(self) -> Plan:
        """What a launch would do.

        Raises:
            InvalidInput: something stands in its way.
        """
        return with_size_of_packages(self.session.plan(for_apply=True).plan)


def prepare(
    function: Callable[..., object],
    settings: Settings,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> PreparedCall:
    """Check and pickle a call; nothing is written.

    Raises:
        InvalidInput: the arguments do not fit, or something cannot be pickled.
    """
    refuse_inside_of_a_rank(function)
    if settings.ray is None:
        bound = bind(function, args, kwargs)
    else:
        bound = bind(function, args, kwargs, fillable=())
    location = call_location(target=settings.target)
    origin = origin_of(function)
    above = parent()
    limit = _MOST_CALLS if settings.remote else None
    attended = not (settings.remote or settings.run_async)
    call = _call(origin.name, function, bound, above, attended=attended, limit=limit)
    declaration = Declaration(
        origin=origin,
        settings=settings,
        arguments=readable_arguments(bound.by_name),
        parent=above,
    )
    session = Session.for_call(location, declaration.read, call.path)
    return PreparedCall(origin=origin, settings=settings, session=session, call=call)


def with_size_of_packages(plan: Plan) -> Plan:
    """Add the size of the snapshot to the check that announces it."""
    for change in plan.changes:
        env = change.environment if change.kind is Kind.ENVIRONMENT else None
        if env is not None and env.bytes is not None and env.bytes_to_stage is not None:
            amount = f": {size(env.bytes)}, {size(env.bytes_to_stage)} of it to stage"
            checks = (
                replace(check, summary=check.summary + amount) if check.code == CAPTURED else check
                for check in plan.checks
            )
            return replace(plan, checks=tuple(checks))
    return plan


def refuse_inside_of_a_rank(function: Callable[..., object]) -> None:
    """Refuse a call by a rank, or by the driver or a task of a Ray run, which have no `RANK`."""
    name = getattr(function, "__name__", "it")
    hint = f"call the function itself there: `{name}.func(...)`"
    run = os.environ.get("SGPU_ADDRESS", "").removeprefix("run.")
    attempt = os.environ.get("SGPU_ATTEMPT")
    launched = bool(run and attempt)
    if all(variable in os.environ for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
        where = f"rank {os.environ['RANK']}"
        if launched:
            where += f" of `{run}#{attempt}`"
        else:  # of torchrun, or of a notebook that plays one
            hint += "; if this is no rank, unset `RANK` and `LOCAL_RANK`"
        why = "ranks start no ranks"
    elif launched and "RAY_ADDRESS" in os.environ:
        where, why = f"the Ray run `{run}#{attempt}`", "a run starts no runs"
    else:
        return
    raise InvalidInput(
        f"`{name}.distributed()` was called inside of {where}: {why}",
        hint=hint,
        code="nested_call",
    )


def _call(
    name: str,
    function: Callable[..., object],
    bound: Bound,
    above: Parent,
    *,
    attended: bool,
    limit: int | None,
) -> Call:
    packed, inputs = pickled(
        PicklePart(value=function, what=f"`{name}`"),
        PicklePart(
            value=(tuple(bound.args), dict(bound.kwargs)),
            what=f"what is given to `{name}`",
            contents={f"the argument `{item}`": value for item, value in bound.by_name.items()},
        ),
    )
    return Call(
        name=name,
        function=packed,
        inputs=inputs,
        python=".".join(platform.python_version_tuple()[:2]),
        cloudpickle=_cloudpickle(packed, inputs),
        folder=Path.cwd(),
        path=local_paths(),
        fill=bound.fill,
        group=bool(bound.fill) and _counts_on_a_group(function, packed),
        attended=attended,
        loads=loaded_packages(function),
        limit=limit,
        tags=above.tags,
    )


def _cloudpickle(*pickles: Pickled) -> str | None:
    if not any(b"cloudpickle" in item.stream for item in pickles):
        return None
    import cloudpickle

    return str(cloudpickle.__version__)


def _counts_on_a_group(function: Callable[..., object], packed: Pickled) -> bool:
    """Whether a function that leaves its rank to be filled in uses torch, and brings up no process
    group itself: then it counts on one."""
    text = packed.stream + _source(function)
    return mentions(text, "torch") and not mentions(text, "init_process_group")


def _source(function: Callable[..., object]) -> bytes:
    """The source of the module that a function is imported from, which its pickle only names."""
    module = inspect.getmodule(function)
    if module is None or module.__name__ == "__main__":
        return b""
    try:
        return inspect.getsource(module).encode()
    except (OSError, TypeError):
        return b""


def await_room(session: "Session", plan: Plan, limit: int | None) -> bool:
    """Wait until fewer calls are active on the backend of a plan than its `max_parallel` says, or
    `limit` if it has none.

    Returns:
        Whether it had to wait, which makes the plan old.
    """
    (launch,) = (change for change in plan.changes if change.launches)
    backend = launch.backend
    most = _declared(launch) or limit
    if most is None or kind_named(backend).capabilities.queues:
        return False
    waited = False
    while (active := session.runs.active_calls(backend)) >= most:
        if not waited:
            say(f"waiting: {count(active, 'call')} active, of {most} at once")
        waited = True
        time.sleep(REST)
    return waited


def _declared(change: Change) -> int | None:
    """The `max_parallel` of what is launched."""
    limit = change.launch.inputs.spec.fields.get("max_parallel") if change.launch else None
    return limit if isinstance(limit, int) else None
