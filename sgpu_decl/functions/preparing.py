"""From a function, its settings and arguments to a plan and what its launch takes along."""

import inspect
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.api import Session
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.arguments import shown_arguments
from sgpu_decl.functions.binding import Bound, bind
from sgpu_decl.functions.capturing import loaded_packages
from sgpu_decl.functions.declaring import Declaration
from sgpu_decl.functions.limiting import MOST_CALLS
from sgpu_decl.functions.locating import call_location
from sgpu_decl.functions.origin import local_paths, origin_of
from sgpu_decl.functions.pickling import mentions, pickled
from sgpu_decl.functions.settings import Settings
from sgpu_decl.functions.tracking import Parent, parent
from sgpu_decl.model.call import Call, Pickled
from sgpu_decl.model.plan import Plan

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A call that can be planned and launched. `place` and `spelled` are those of its decorator:
    where it stands, and the parameters that it was given, by the field of a run."""

    name: str
    place: Place
    spelled: Mapping[str, str]
    session: Session
    call: Call

    def plan(self) -> Plan:
        """What a launch would do.

        Raises:
            InvalidInput: something stands in its way.
        """
        return self.session.plan(take_in=True)


def prepare(
    function: Callable[..., object],
    settings: Settings,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> Prepared:
    """Check and pickle a call; nothing is written.

    Raises:
        InvalidInput: the arguments do not fit, or something cannot be pickled.
    """
    refuse_inside_of_a_rank(function)
    bound = bind(function, args, kwargs)
    location = call_location(target=settings.target)
    origin = origin_of(function)
    above = parent()
    limit = MOST_CALLS if settings.remote else None
    call = _call(
        origin.name,
        function,
        bound,
        above,
        attended=not (settings.remote or settings.run_async),
        limit=limit,
    )
    declaration = Declaration(
        origin=origin,
        settings=settings,
        arguments=shown_arguments(bound.named),
        parent=above,
        target=location.target,
    )
    session = Session.for_call(location, declaration.read, call.path)
    return Prepared(
        name=origin.name,
        place=origin.place,
        spelled=settings.spelled,
        session=session,
        call=call,
    )


def refuse_inside_of_a_rank(function: Callable[..., object]) -> None:
    if not all(name in os.environ for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
        return
    name = getattr(function, "__name__", "it")
    hint = f"call the function itself there: `{name}.func(...)`"
    run = os.environ.get("SGPU_ADDRESS", "").removeprefix("run.")
    attempt = os.environ.get("SGPU_ATTEMPT")
    where = f" of `{run}#{attempt}`"
    if not (run and attempt):  # of torchrun, or of a notebook that plays one
        where, hint = "", f"{hint}; if this is no rank, unset `RANK` and `LOCAL_RANK`"
    raise InvalidInput(
        f"`{name}.distributed()` was called inside of rank {os.environ['RANK']}{where}: "
        "ranks start no ranks",
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
    packed = pickled(function, f"`{name}`")
    inputs = pickled(
        (tuple(bound.args), dict(bound.kwargs)),
        f"what is given to `{name}`",
        named={f"the argument `{it}`": value for it, value in bound.named.items()},
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


def _cloudpickle(*found: Pickled) -> str | None:
    if not any(b"cloudpickle" in it.stream for it in found):
        return None
    import cloudpickle

    return str(cloudpickle.__version__)


def _counts_on_a_group(function: Callable[..., object], packed: Pickled) -> bool:
    """Whether a function that leaves its rank to be filled in uses torch, and brings up no process
    group itself: then it counts on one."""
    found = packed.stream + _source(function)
    return mentions(found, "torch") and not mentions(found, "init_process_group")


def _source(function: Callable[..., object]) -> bytes:
    """The source of the module that a function is imported from, which its pickle only names."""
    module = inspect.getmodule(function)
    if module is None or module.__name__ == "__main__":
        return b""
    try:
        return inspect.getsource(module).encode()
    except (OSError, TypeError):
        return b""
