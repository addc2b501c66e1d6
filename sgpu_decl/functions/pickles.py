"""Pickles of functions and arguments, by cloudpickle, with large arrays and tensors beside them."""

import io
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.pickle_errors import culprit
from sgpu_decl.model.call import Pickled
from sgpu_decl.rank.storages import LARGE, Storages


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
                path, kind, why = culprit(part.value, dump_alone, error, part.contents)
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
