"""A called function in the folder of its attempt: the pickles, and what ranks are told of them."""

import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from sgpu_decl.model.call import Call, Pickled
from sgpu_decl.rendering import spec

ALIGNED = 64  # bytes; what vector instructions like best


def write_call(folder: Path, call: Call) -> None:
    """Write the pickles; buffers go from the caller's memory into their file.

    Raises:
        OSError: the disk is full.
    """
    for name, pickled in (("func", call.function), ("inputs", call.inputs)):
        _write(folder / f"{name}.pkl", [pickled.stream])
        if pickled.buffers:
            _write(folder / f"{name}.bin", _padded(pickled.buffers))


def call_entry(call: Call) -> spec.Entry:
    """What the spec says of a call."""
    return spec.Entry(
        kind="pickle",
        function=call.name,
        call=spec.CallSpec(
            name=call.name,
            python=call.python,
            cloudpickle=call.cloudpickle,
            path=call.path,
            fill=call.fill,
            group=call.group,
            function_crc=zlib.crc32(call.function.stream),
            inputs_crc=zlib.crc32(call.inputs.stream),
            function_buffers=tuple(_layout(call.function)),
            inputs_buffers=tuple(_layout(call.inputs)),
        ),
    )


def _layout(pickled: Pickled) -> Iterator[tuple[int, int]]:
    offset = 0
    for buffer in pickled.buffers:
        yield offset, buffer.nbytes
        offset += buffer.nbytes + -buffer.nbytes % ALIGNED


def _padded(buffers: Sequence[memoryview]) -> Iterator[memoryview | bytes]:
    for buffer in buffers:
        yield buffer
        yield bytes(-buffer.nbytes % ALIGNED)


def _write(path: Path, parts: "Sequence[bytes] | Iterator[memoryview | bytes]") -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", 0) as file:
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[file.write(rest) :]
