"""The part of a value that cannot be pickled, and the path to it: `the global variable lock`."""

import types
from collections.abc import Callable, Iterator, Mapping

from sgpu_decl.functions.captured_values import CachedFunction, captured

_DEPTH = 12
_MOST = 2_000  # values that are tried; each try may pickle much

Dump = Callable[[object], bytes]


def culprit(
    value: object, dump: Dump, error: BaseException, contents: Mapping[str, object]
) -> tuple[str, str, str]:
    """Return the path to the innermost value that cannot be pickled, its type and why.

    Args:
        dump: pickles a value, or raises.
        error: what it raised for `value`.
        named: what `value` is made of, with words for each; looked at first.

    Returns:
        The path is empty where `value` itself is the one.
    """
    path: list[str] = []
    visited: set[int] = set()
    tries = _MOST
    while len(path) < _DEPTH:
        for step, part in [*contents.items(), *_parts(value)] if not path else _parts(value):
            if id(part) in visited or tries <= 0:
                continue
            visited.add(id(part))
            tries -= 1
            wrong = _refused(part, dump)
            if wrong is not None:
                path.append(step)
                value, error = part, wrong
                break
        else:
            break
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return _joined(path), name, _reason(error)


def _refused(value: object, dump: Dump) -> BaseException | None:
    try:
        dump(value)
    except Exception as error:  # noqa: BLE001  what a `__reduce__` raises may be anything
        return error
    return None


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """What a value holds that is pickled with it, each with the step that leads there."""
    if isinstance(value, types.MethodType):
        yield "its object", value.__self__
        yield "its function", value.__func__
    elif isinstance(value, types.FunctionType):
        yield from captured(value)
    elif isinstance(value, CachedFunction):
        yield "what it wraps", value.__wrapped__
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield f"[{key!r}]", item
    elif isinstance(value, tuple | list | set | frozenset):
        for at, item in enumerate(value):
            yield f"[{at}]", item
    elif isinstance(value, type):
        for name, item in vars(value).items():
            if not name.startswith("__"):
                yield f".{name}", item
    else:
        state = getattr(value, "__dict__", None)
        if isinstance(state, dict) and not isinstance(value, types.ModuleType):
            for name, item in state.items():
                yield f".{name}", item


def _joined(path: list[str]) -> str:
    """The steps as one phrase: those with dots and brackets go inside of the quotes of the name
    before them."""
    whole = ""
    for step in path:
        if step[0] in ".[":
            whole = whole[:-1] + step + "`" if whole.endswith("`") else f"{whole} `{step}`".lstrip()
        else:
            whole = f"{whole}, {step}" if whole else step
    return whole


def _reason(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    return f"which says: {text[:200]}" if text else "which does not say why"
