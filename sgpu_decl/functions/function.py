"""A function that runs as ranks when it is called by `.distributed(...)`."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)  # fmt: skip

from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.call_settings import Parameters, Settings, merged_settings
from sgpu_decl.functions.short_tracebacks import short_tracebacks
from sgpu_decl.model.plan import Plan

if TYPE_CHECKING:
    from sgpu_decl.functions.call_results import CallTable

P = ParamSpec("P")
R = TypeVar("R")


class CallPlan(Plan):
    """A plan that `print` and notebooks show as `sgpu plan` does."""

    __slots__ = ()

    @classmethod
    def of(cls, plan: Plan) -> "CallPlan":
        return cls(**{field.name: getattr(plan, field.name) for field in fields(plan)})

    def __str__(self) -> str:
        from sgpu_decl.views.plan_text import render

        return render(self, now=datetime.now(UTC))

    def _repr_html_(self) -> str:
        from sgpu_decl.views.plan_html import render

        return render(self, now=datetime.now(UTC))


class CalledDirectly(InvalidInput, TypeError):
    code = "called_directly"


_Method = TypeVar("_Method", bound=Callable[..., object])


def _function_signature(method: _Method) -> _Method:
    """Have `inspect.signature`, IPython and `help` show the parameters of its object's `func` for a
    method, instead of `*args, **kwargs`. Errors that leave the method have short tracebacks."""
    return cast("_Method", _SignedMethod(method))


class _SignedMethod:
    def __init__(self, method: Callable[..., object]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., object]:
        if instance is None:
            return self._method
        bound = MethodType(self._method, instance)

        @short_tracebacks
        @functools.wraps(self._method)
        def call(*args: object, **kwargs: object) -> object:
            return bound(*args, **kwargs)

        own = inspect.signature(bound)
        try:
            signature = inspect.signature(instance.func)
        except (TypeError, ValueError):  # a builtin without a signature
            signature = own
        call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            return_annotation=own.return_annotation
        )
        return call


class DistributedFunction(Generic[P, R]):
    """What `@distributed` and `@ray_launch` make of a function: the function, and on which ranks or
    Ray cluster it runs.

    `P` are the parameters of the function. `R` is what `.distributed(...)` returns: the list of the
    ranks' values, with `@ray_launch` what the function returned, or with `run_async=True` a
    `DistributedFunctionCall`. Calls may leave out what ranks fill in, which `P` cannot say: so each
    method that takes the arguments has a second, free signature.
    """

    def __init__(self, func: Callable[..., object], settings: Settings) -> None:
        self._func = func
        self._settings = settings
        functools.update_wrapper(self, func)

    @property
    def func(self) -> Callable[..., object]:
        """The function itself, to be called in this process."""
        return self._func

    @property
    def num_accelerators(self) -> int | None:
        """How many ranks it was told to run on; None where the project or the machine says it."""
        return self._settings.gpus

    @property
    def accelerator_type(self) -> str | None:
        return self._settings.gpu_type

    @property
    def remote(self) -> bool:
        return self._settings.remote

    @short_tracebacks
    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        name = getattr(self._func, "__name__", "it")
        there = "on ranks" if self._settings.ray is None else "on a Ray cluster"
        raise CalledDirectly(
            f"`{name}` runs {there}, and was called here",
            hint=f"`{name}.distributed(...)` runs it {there}, `{name}.func(...)` here",
        )

    @overload
    def distributed(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def distributed(self, *args: object, **kwargs: object) -> R: ...

    @_function_signature
    def distributed(self, *args: object, **kwargs: object) -> R:
        """Run the function with these arguments on every rank, with `@ray_launch` once.

        What rank 0 or the driver prints appears here; an interrupt stops all ranks.

        Returns:
            What each rank returned, in rank order; with `@ray_launch` what the function returned.
            With `run_async=True` a `DistributedFunctionCall` at once.

        Raises:
            BaseException: the exception of the rank that failed first, with a `RankFailed`, which
                holds its rank and traceback, as the cause.
            RankFailed: the ranks failed otherwise: a crash, a timeout.
            InvalidInput: the call cannot work; nothing was started.
            SgpuError: it could not be launched.
        """
        from sgpu_decl.functions.call_launch import run

        return cast("R", run(self._func, self._settings, args, kwargs))

    @short_tracebacks
    def map(
        self, calls: Iterable[Mapping[str, object]], *, max_parallel: int | None = None
    ) -> "CallTable[R]":
        """Run the function once for each set of arguments, side by side, and wait for all of them.

        Lines of rank 0 appear here with the name of their call, on a backend without a queue once
        the last call is launched. An interrupt stops all calls.

        Args:
            calls: the arguments of each call, by name: `[{"lr": 0.1}, {"lr": 0.01}]`.
            max_parallel: how many calls run at once. The others wait. By default what `functions`
                of the project says. Else calls on this machine wait for free GPUs, or without GPUs
                until their ranks have a processor each; calls elsewhere wait as others do there.

        Returns:
            A table with a row for each call, in this order: its arguments, state, time, and what it
            returned or why it failed. A call that fails does not end the others.

        Raises:
            InvalidInput: a call cannot work; nothing was started.
            SgpuError: the first call could not be launched.
        """
        from sgpu_decl.functions.call_map import run_map

        return cast("CallTable[R]", run_map(self._func, self._settings, calls, max_parallel))

    @overload
    def plan(self, *args: P.args, **kwargs: P.kwargs) -> CallPlan: ...

    @overload
    def plan(self, *args: object, **kwargs: object) -> CallPlan: ...

    @_function_signature
    def plan(self, *args: object, **kwargs: object) -> CallPlan:
        """Say what `.distributed(...)` with these arguments would launch; writes only caches.

        Raises:
            InvalidInput: the arguments do not fit, or something cannot be pickled.
        """
        from sgpu_decl.functions.prepared_call import prepare

        return CallPlan.of(prepare(self._func, self._settings, args, kwargs).plan())

    def with_overrides(self, **values: Unpack[Parameters]) -> "DistributedFunction[P, R]":
        """The same function with other settings: what its decorator takes.

        Raises:
            InvalidInput: a setting is unknown, or of the wrong kind.
        """
        with short_tracebacks:
            return DistributedFunction(self._func, merged_settings(self._settings, values))

    def __reduce__(self) -> tuple[object, ...]:
        return DistributedFunction, (self._func, self._settings)

    def __get__(self, instance: object, owner: type | None = None) -> "DistributedFunction[P, R]":
        """A decorated method is one of its object."""
        if instance is None:
            return self
        return DistributedFunction(MethodType(self._func, instance), self._settings)

    def __repr__(self) -> str:
        settings = self._settings.run_fields().items()
        words = ", ".join(f"{name}={value}" for name, value in settings)
        return f"<DistributedFunction {getattr(self._func, '__name__', '?')}({words})>"
