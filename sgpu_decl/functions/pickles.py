"""Pickles of functions and arguments, by cloudpickle, with large arrays and tensors beside them."""

import io
import pickle
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.captured_values import CachedFunction, captured
from sgpu_decl.model.call import Pickled
from sgpu_decl.rank.storages import LARGE, Storages

_DEPTH = 12
_MOST = 2_000  # values that are tried; each try may pickle much

_Dump = Callable[[object], bytes]


class Unpicklable(InvalidInput):
    code = "unpicklable"


@dataclass(frozen=True, slots=True, kw_only=True)
class PicklePart:
    """A value that travels.

    Attributes:
        what: its name in messages, such as "`train`".
        named: what it is made of, by what messages call that, such as "the argument `data`".
    """

    value: object
    what: str
    contents: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


def pickled(*parts: PicklePart) -> tuple[Pickled, ...]:
    """Pickle functions, by value unless ranks can import them, and arguments.

    An object that several of them hold is one object in the ranks too, because each stream goes on
    from the memo of the one before it. Arrays and tensors that share memory share it there.

    Raises:
        Unpicklable: something that they hold cannot be pickled; the message has the path to it.
    """
    first = Storages(refused=_on_a_device)
    streams = _dump(parts, first)
    common = first.shared()
    return _dump(parts, Storages(common, refused=_on_a_device)) if common else streams


def _dump(parts: Sequence[PicklePart], storages: Storages) -> tuple[Pickled, ...]:
    from sgpu_decl.functions.pickler import pickler_class

    make = pickler_class(storages.reducers())
    buffers: list[memoryview] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if raw.nbytes < LARGE:
            return True
        buffers.append(raw)
        return False

    def dump_alone(value: object) -> bytes:
        with io.BytesIO() as file:
            make(file, protocol=5).dump(value)
            return file.getvalue()

    done: list[Pickled] = []
    with io.BytesIO() as file:
        pickler = make(file, protocol=5, buffer_callback=keep_in_band)
        for part in parts:
            try:
                pickler.dump(part.value)
            except Exception as error:
                path, kind, why = _culprit(part.value, dump_alone, error, part.contents)
                raise Unpicklable(
                    f"{part.what} cannot be sent to ranks: {path or 'it'} {_is_a(kind)}, {why}",
                    hint="make it inside of the function, or leave it out of what it uses",
                ) from error
            done.append(Pickled(stream=file.getvalue(), buffers=tuple(buffers)))
            buffers.clear()
            file.seek(0)
            file.truncate()
    return tuple(done)


def _on_a_device(device: str) -> Exception:
    return pickle.PicklingError(
        f"it is on `{device}`, and ranks have devices of their own: send what `.cpu()` gives, and "
        "move it to a device inside of the function"
    )


def mentions(text: bytes, name: str) -> bool:
    """Whether a pickled function, or a source, uses a name."""
    word = rb"(?<![A-Za-z0-9_])" + name.encode() + rb"(?![A-Za-z0-9_])"
    return re.search(word, text) is not None


def _is_a(kind: str) -> str:
    return f"holds {'an' if kind[:1] in 'aeiou' else 'a'} `{kind}`"


def _culprit(
    value: object, dump: _Dump, error: BaseException, contents: Mapping[str, object]
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


def _refused(value: object, dump: _Dump) -> BaseException | None:
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
