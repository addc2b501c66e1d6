"""Requests to the program on a box, and its answers: frames in both directions.

    4 bytes    the length of the JSON object
    8 bytes    the length of the content
    JSON       a request has `do`, the name of an operation; an answer may have `error`
    content    any bytes

Before the first answer comes a line with `system.marked_answer.MARK`: whatever shells and programs
print at a login stands before it.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO

_PART = 1 << 20
HEAD = struct.Struct(">IQ")
LARGEST = 64 << 20
"""Bytes of a JSON object; a larger one is not of ours."""


class BadFrame(Exception):
    """What came is no frame: something else writes to the stream."""


def frame_head(message: dict[str, Any], size: int = 0) -> bytes:
    """The beginning of a frame whose content, of `size` bytes, follows."""
    text = json.dumps(message, separators=(",", ":")).encode()
    return HEAD.pack(len(text), size) + text


def read_head(read: Callable[[int], bytes]) -> tuple[dict[str, Any], int] | None:
    """Read the beginning of a frame: its message, and the bytes of content that follow.

    Args:
        read: returns so many bytes, or fewer at the end of the stream.

    Returns:
        None at the end of the stream, also in the middle of a frame.

    Raises:
        BadFrame: it is none.
    """
    head = read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    length, size = HEAD.unpack(head)
    if length > LARGEST:
        raise BadFrame(f"a frame begins with {head!r}")
    text = read(length)
    if len(text) < length:
        return None
    try:
        message = json.loads(text)
    except ValueError as error:
        raise BadFrame(f"a frame holds no JSON: {text[:80]!r}") from error
    if not isinstance(message, dict):
        raise BadFrame(f"a frame holds no object: {text[:80]!r}")
    return message, size


class RequestContent:
    """The bytes that follow a request, read as they are needed."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        self.left = size

    def read(self, size: int) -> bytes:
        """So many bytes. Raises EOFError: the connection ended before."""
        data = self._stream.read(min(size, self.left))
        self.left -= len(data)
        if len(data) < size:
            raise EOFError("the connection ended in the middle of a request")
        return data

    def parts(self, size: int) -> Iterator[bytes]:
        """The same, in parts."""
        while size:
            part = self.read(min(size, _PART))
            size -= len(part)
            yield part

    def skip(self) -> None:
        """Read what is left. Raises EOFError."""
        for _ in self.parts(self.left):
            pass


class BoxRefusal(Exception):
    """An operation refuses a request; the text says why, and `code` is for programs."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
