"""`@distributed` and `@ray_launch`: a function becomes one that runs as ranks."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.call_settings import UNSET, Settings, Unset, merged_settings
from sgpu_decl.functions.function import DistributedFunction
from sgpu_decl.model.gpu import GPUType

if TYPE_CHECKING:
    from datetime import timedelta

    from sgpu_decl.functions.call_results import Results
    from sgpu_decl.functions.running_call import DistributedFunctionCall

__all__ = ["distributed", "ray_launch"]

R = TypeVar("R")


@overload
def distributed(num_accelerators: Callable[..., R], /) -> "DistributedFunction[Results[R]]": ...


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
) -> "Callable[[Callable[..., R]], DistributedFunction[Results[R]]]": ...


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
) -> "Callable[[Callable[..., R]], DistributedFunction[DistributedFunctionCall[R]]]": ...


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
) -> object:
    """Make a function that runs as ranks, one on each GPU, when `.distributed(...)` is called.

    Args:
        num_accelerators: how many ranks; also `gpus`. By default all GPUs of this machine.
        accelerator_type: a GPU by its name (`A100`, `H100`, `RTX_4090`), `GPU` for whatever there
            is, `CPU`, a node such as `GPU_8xH100`, or a `GPUType`, in any case; also `gpu_type`.
            Needed with `remote=True`.
        remote: run on the backend that the project's `functions` name, instead of on this machine.
        timeout: how long the ranks may run: seconds, a `timedelta`, or `6h`. 3 hours on this
            machine by default; None for no limit.
        num_gpus: `gpus`, with a warning.
        run_async: return a `DistributedFunctionCall` at once, and let the ranks go on.
        target: the target of the project whose `functions` apply.

    Raises:
        InvalidInput: a setting is of the wrong kind, or two say different things.
    """
    values: dict[str, object] = {
        "num_accelerators": num_accelerators,
        "accelerator_type": accelerator_type,
        "gpus": gpus,
        "gpu_type": gpu_type,
        "remote": remote,
        "timeout": timeout,
        "run_async": run_async,
        "target": target,
    }
    if num_gpus is not None:
        values["num_gpus"] = num_gpus
    if callable(num_accelerators):  # `@distributed` without parentheses
        del values["num_accelerators"]
        return _decorator(merged_settings(Settings(), values))(num_accelerators)
    return _decorator(merged_settings(Settings(), values))


def ray_launch(
    num_accelerators: int | None = None,
    accelerator_type: str | GPUType | None = None,
    remote: bool = False,  # noqa: FBT001, FBT002  as above
    timeout: "float | str | timedelta | Unset | None" = UNSET,
    *,
    gpus: int | None = None,
    gpu_type: str | GPUType | None = None,
    target: str | None = None,
) -> "Callable[[Callable[..., R]], DistributedFunction[Results[R]]]":
    """As `distributed`, with a Ray cluster over the ranks' nodes: the function is its driver.

    Raises:
        InvalidInput: a setting is of the wrong kind, or two say different things.
    """
    values = {
        "num_accelerators": num_accelerators,
        "accelerator_type": accelerator_type,
        "gpus": gpus,
        "gpu_type": gpu_type,
        "remote": remote,
        "timeout": timeout,
        "target": target,
    }
    return _decorator(merged_settings(Settings(ray=True), values))


def _decorator(settings: Settings) -> "Callable[[object], DistributedFunction[Any]]":
    def decorate(function: object) -> DistributedFunction[Any]:
        if not callable(function):
            raise InvalidInput(
                f"`@distributed` takes a function, not `{type(function).__name__}`",
                hint="write it above a `def`",
                code="no_function",
            )
        return DistributedFunction(function, settings)

    return decorate
