"""The values that are pickled with a function: captured variables, globals, defaults."""

import functools
import types
from collections.abc import Iterator

CachedFunction = type(functools.lru_cache(len))
"""The type of a function in `functools.lru_cache`."""

_MOST = 5_000  # values that are looked at


def captured(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """The values that a function uses, each with a description for messages."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"the captured variable `{name}`", cell.cell_contents
        except ValueError:  # not bound yet
            continue
    for name in dict.fromkeys(_names(function.__code__)):
        if name in function.__globals__:
            yield f"the global variable `{name}`", function.__globals__[name]
    defaults = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
        yield f"the default of `{name}`", default
    for name, default in (function.__kwdefaults__ or {}).items():
        yield f"the default of `{name}`", default
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield "what it wraps", wrapped


def loaded_packages(function: object) -> frozenset[str]:
    """The top-level packages that loading a function's pickle imports, without those that its own
    code imports."""
    packages: set[str] = set()
    visited: set[int] = set()
    pending = [function]
    while pending and len(visited) < _MOST:
        value = pending.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, types.ModuleType):
            packages.add(value.__name__)
            continue
        if isinstance(value, CachedFunction):
            pending.append(value.__wrapped__)
            continue
        kind = value if isinstance(value, type | types.FunctionType) else type(value)
        if not _by_value(kind):
            packages.add(kind.__module__)
        elif isinstance(kind, types.FunctionType):
            pending += [part for _, part in captured(kind)]
        else:
            pending += [*kind.__bases__, *vars(kind).values()]
        if isinstance(value, types.MethodType):
            pending += [value.__func__, value.__self__]
    return frozenset(name.partition(".")[0] for name in packages)


def _by_value(kind: type | types.FunctionType) -> bool:
    """Whether cloudpickle pickles it by value, because it cannot be imported."""
    return kind.__module__ in (None, "__main__") or "<locals>" in kind.__qualname__


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
