"""The signature of a decorated function, for its methods that take the same arguments."""

import functools
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar, cast

from sgpu_decl.functions.short_tracebacks import short_tracebacks

_Method = TypeVar("_Method", bound=Callable[..., object])


def function_signature(method: _Method) -> _Method:
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
