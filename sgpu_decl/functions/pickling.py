"""Functions and arguments to bytes, by cloudpickle: large arrays beside the stream, uncopied."""

import io
import pickle
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.blaming import culprit
from sgpu_decl.model.call import Pickled

__all__ = ["Unpicklable", "mentions", "pickled"]

LARGE = 1 << 16  # bytes; what is smaller goes with the stream


class Unpicklable(InvalidInput):
    code = "unpicklable"


def pickled(
    value: object, what: str, *, named: Mapping[str, object] = MappingProxyType({})
) -> Pickled:
    """Pickle a function, by value unless ranks can import it, or arguments.

    Args:
        what: how messages call it, such as "`train`".
        named: its parts, by what messages call them, such as "the argument `data`".

    Raises:
        Unpicklable: something that it holds cannot be pickled; says what, and where it hangs.
    """
    from sgpu_decl.functions.pickler import pickler_class

    make = pickler_class()
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

    def dump(one: object, callback: Callable[[pickle.PickleBuffer], bool] | None = None) -> bytes:
        with io.BytesIO() as file:
            make(file, protocol=5, buffer_callback=callback).dump(one)
            return file.getvalue()

    try:
        stream = dump(value, keep_in_band)
    except Exception as error:
        path, kind, why = culprit(value, dump, error, named)
        raise Unpicklable(
            f"{what} cannot be sent to ranks: {path or 'it'} {_is_a(kind)}, {why}",
            hint="make it inside of the function, or leave it out of what the function uses",
        ) from error
    return Pickled(stream=stream, buffers=tuple(buffers))


def mentions(found: bytes, name: str) -> bool:
    """Whether a pickled function, or a source, uses a name."""
    word = rb"(?<![A-Za-z0-9_])" + name.encode() + rb"(?![A-Za-z0-9_])"
    return re.search(word, found) is not None


def _is_a(kind: str) -> str:
    return f"holds {'an' if kind[:1] in 'aeiou' else 'a'} `{kind}`"
