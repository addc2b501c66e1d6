"""The part of a value that cannot be pickled, so that a message can name it."""

from sgpu_decl.rank.output import pickler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_SEARCHED = 10_000  # parts of a value that are tried
_DEEPEST = 12  # steps into a value
_OWN_WAYS = {"__getstate__", "__reduce__", "__reduce_ex__"}  # they may leave attributes out


class _Nowhere:
    def write(self, data: bytes) -> int:
        return len(data)


def picklable(value: object) -> bool:
    try:
        pickler().dump(value, _Nowhere(), protocol=5)
    except Exception:  # noqa: BLE001 - whatever the user's classes raise
        return False
    return True


def culprit(value: object) -> tuple[str, object]:
    """Return the path and the value of the innermost part of a result that cannot be pickled."""
    path, seen, remaining = "result", {id(value)}, _SEARCHED
    for _ in range(_DEEPEST):
        for where, part in _parts(value):
            remaining -= 1
            if remaining < 0:
                return path, value
            if id(part) not in seen and not picklable(part):
                path, value = path + where, part
                seen.add(id(part))
                break
        else:
            break
    return path, value


def _parts(value: object) -> "Iterator[tuple[str, object]]":
    if isinstance(value, dict):
        for key, part in value.items():
            yield (f'["{key}"]' if type(key) is str else f"[{key!r:.50}]"), part
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield f"[{index}]", part
    elif not any(_OWN_WAYS & vars(kind).keys() for kind in type(value).__mro__[:-1]):
        for name, part in getattr(value, "__dict__", {}).items():
            yield f".{name}", part


def type_name(value: object) -> str:
    kind = type(value)
    prefix = "" if kind.__module__ in ("builtins", "__main__") else kind.__module__ + "."
    return prefix + kind.__qualname__
