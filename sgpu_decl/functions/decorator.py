"""`@distributed` runs a function as ranks, `@ray_launch` as the driver of a Ray cluster."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.call_settings import UNSET, Settings, Unset, merged_settings
from sgpu_decl.functions.function import DistributedFunction
from sgpu_decl.functions.short_tracebacks import short_tracebacks
from sgpu_decl.model.gpu import GPUType

if TYPE_CHECKING:
    from datetime import timedelta

    from sgpu_decl.functions.call_results import Results
    from sgpu_decl.functions.running_call import DistributedFunctionCall

P = ParamSpec("P")
R = TypeVar("R")


@overload
def distributed(num_accelerators: Callable[P, R], /) -> "DistributedFunction[P, Results[R]]": ...


@overload
def distributed(
    num_accelerators: int | None = None,
    accelerator_type: str | GPUType | None = None,
    remote: bool = False,  # noqa: FBT001, FBT002  its place is that of the library it stands in for
    timeout: "float | str | timedelta | Unset | None" = UNSET,
    *,
    gpus: int | None = None,
    gpu_type: str | GPUType | None = None,
    num_gpus: int | None = None,
    run_async: Literal[False] = False,
    target: str | None = None,
) -> "Callable[[Callable[P, R]], DistributedFunction[P, Results[R]]]": ...


@overload
def distributed(
    num_accelerators: int | None = None,
    accelerator_type: str | GPUType | None = None,
    remote: bool = False,  # noqa: FBT001, FBT002
    timeout: "float | str | timedelta | Unset | None" = UNSET,
    *,
    gpus: int | None = None,
    gpu_type: str | GPUType | None = None,
    num_gpus: int | None = None,
    run_async: Literal[True],
    target: str | None = None,
) -> "Callable[[Callable[P, R]], DistributedFunction[P, DistributedFunctionCall[Results[R]]]]": ...


def distributed(
    num_accelerators: object = None,
    accelerator_type: object = None,
    remote: object = False,  # noqa: FBT002  as above
    timeout: object = UNSET,
    *,
    gpus: object = None,
    gpu_type: object = None,
    num_gpus: object = None,
    run_async: object = False,
    target: object = None,
    **unknown: object,
) -> object:
    """Make a function that runs as ranks, one on each GPU, when `.distributed(...)` is called.

    Args:
        num_accelerators: how many ranks; also `gpus`. By default all GPUs of this machine.
        accelerator_type: a GPU by its name (`A100`, `H100`, `RTX_4090`), `GPU` for whatever there
            is, `CPU`, a node such as `GPU_8xH100`, or a `GPUType`, in upper or lower case; also
            `gpu_type`. Needed with `remote=True`.
        remote: run on the backend that the project's `functions` name, instead of on this machine.
        timeout: how long the ranks may run: seconds, a `timedelta`, or `6h`. 3 hours on this
            machine by default; None for no limit.
        num_gpus: `gpus`, with a warning.
        run_async: return a `DistributedFunctionCall` at once, and let the ranks go on.
        target: the target of the project; its `functions` are the defaults of the call.

    Raises:
        InvalidInput: a setting is of the wrong kind, or two say different things.
    """
    with short_tracebacks:
        return _decorated(
            Settings(),
            num_accelerators,
            {
                "accelerator_type": accelerator_type,
                "gpus": gpus,
                "gpu_type": gpu_type,
                "num_gpus": num_gpus,
                "remote": remote,
                "timeout": timeout,
                "run_async": run_async,
                "target": target,
                **unknown,
            },
        )


@overload
def ray_launch(num_accelerators: Callable[P, R], /) -> DistributedFunction[P, R]: ...


@overload
def ray_launch(
    num_accelerators: int | None = None,
    accelerator_type: str | GPUType | None = None,
    remote: bool = False,  # noqa: FBT001, FBT002
    timeout: "float | str | timedelta | Unset | None" = UNSET,
    *,
    gpus: int | None = None,
    gpu_type: str | GPUType | None = None,
    num_gpus: int | None = None,
    run_async: Literal[False] = False,
    target: str | None = None,
    ray: "Mapping[str, object] | bool | None" = None,
) -> Callable[[Callable[P, R]], DistributedFunction[P, R]]: ...


@overload
def ray_launch(
    num_accelerators: int | None = None,
    accelerator_type: str | GPUType | None = None,
    remote: bool = False,  # noqa: FBT001, FBT002
    timeout: "float | str | timedelta | Unset | None" = UNSET,
    *,
    gpus: int | None = None,
    gpu_type: str | GPUType | None = None,
    num_gpus: int | None = None,
    run_async: Literal[True],
    target: str | None = None,
    ray: "Mapping[str, object] | bool | None" = None,
) -> "Callable[[Callable[P, R]], DistributedFunction[P, DistributedFunctionCall[R]]]": ...


def ray_launch(
    num_accelerators: object = None,
    accelerator_type: object = None,
    remote: object = False,  # noqa: FBT002  as above
    timeout: object = UNSET,
    *,
    gpus: object = None,
    gpu_type: object = None,
    num_gpus: object = None,
    run_async: object = False,
    target: object = None,
    ray: object = None,
    **unknown: object,
) -> object:
    """Make a function that runs once, as the driver of a Ray cluster on the nodes of its GPUs, when
    `.distributed(...)` is called. The call returns what the function returns, and no list.

    Args:
        num_accelerators: how many GPUs the cluster has; also `gpus`. By default all GPUs of this
            machine.
        accelerator_type: as in `distributed`; also `gpu_type`.
        remote: as in `distributed`.
        timeout: as in `distributed`.
        num_gpus: `gpus`, with a warning.
        run_async: return a `DistributedFunctionCall` at once, whose `result()` is what the function
            returned.
        target: as in `distributed`.
        ray: the options of the cluster, as the block `ray` of a run has them:
            `{"num_cpus": 8, "dashboard": True}`.

    Raises:
        InvalidInput: a setting is of the wrong kind, or two say different things.
    """
    with short_tracebacks:
        return _decorated(
            Settings(ray={}, parameters={"type": "gpu_type", "ray": "@ray_launch"}),
            num_accelerators,
            {
                "accelerator_type": accelerator_type,
                "gpus": gpus,
                "gpu_type": gpu_type,
                "num_gpus": num_gpus,
                "remote": remote,
                "timeout": timeout,
                "run_async": run_async,
                "target": target,
                "ray": ray,
                **unknown,
            },
        )


def _decorated(before: Settings, count: object, values: dict[str, object]) -> object:
    """What a decorator returns: the function itself where it is written without parentheses, and
    `count` is the function then."""
    if values["num_gpus"] is None:  # its name alone is a warning
        del values["num_gpus"]
    if callable(count):
        return _decorator(merged_settings(before, values))(count)
    return _decorator(merged_settings(before, {"num_accelerators": count, **values}))


def _decorator(settings: Settings) -> "Callable[[object], DistributedFunction[..., Any]]":
    decorator = "distributed" if settings.ray is None else "ray_launch"

    @short_tracebacks
    def decorate(function: object) -> DistributedFunction[..., Any]:
        if not callable(function):
            raise InvalidInput(
                f"`@{decorator}` takes a function, not `{type(function).__name__}`",
                hint="write it above a `def`",
                code="no_function",
            )
        return DistributedFunction(function, settings)

    return decorate
