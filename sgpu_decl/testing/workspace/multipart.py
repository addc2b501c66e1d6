"""Forms as browsers and the SDK send them: `multipart/form-data` (RFC 7578)."""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from email.parser import BytesHeaderParser

from sgpu_decl.testing.workspace.body import Body, spooled
from sgpu_decl.testing.workspace.routes import Request, malformed

__all__ = ["form", "is_form", "texts"]

_BLOCK = 1 << 20


def is_form(request: Request) -> bool:
    """Whether a request says that its body is a form."""
    return (request.headers.get("Content-Type") or "").startswith("multipart/form-data")


@contextmanager
def form(request: Request) -> Iterator[dict[str, Body]]:
    """The fields of a form, files among them. What is not moved away is gone afterwards. Raises
    ApiError, 400, for a body that is none."""
    fields: dict[str, Body] = {}
    try:
        with _mapped(request.content) as data:
            for head, start, end in _parts(data, _boundary(request.headers)):
                name = head.get_param("name", header="content-disposition")
                if not isinstance(name, str):
                    raise malformed("a part of the form has no name")
                blocks = (data[at : min(at + _BLOCK, end)] for at in range(start, end, _BLOCK))
                fields[name] = spooled(blocks, request.server.incoming)
        yield fields
    finally:
        for body in fields.values():
            body.discard()


def texts(request: Request) -> dict[str, str]:
    """The fields of a form that are no files."""
    found = {}
    with _mapped(request.content) as data:
        for head, start, end in _parts(data, _boundary(request.headers)):
            name = head.get_param("name", header="content-disposition")
            if isinstance(name, str) and head.get_filename() is None:
                found[name] = data[start:end].decode("utf-8", "replace")
    return found


def _parts(data: bytes | mmap.mmap, boundary: bytes) -> Iterator[tuple[Message, int, int]]:
    """The head of each part, and where its content begins and ends."""
    mark = b"--" + boundary
    at = data.find(mark)
    while at >= 0:
        at += len(mark)
        if data[at : at + 2] == b"--":
            return
        gap = data.find(b"\r\n\r\n", at)
        end = data.find(b"\r\n" + mark, gap + 4)
        if gap < 0:
            raise malformed("a part of the form has no content")
        if end < 0:
            break
        head = BytesHeaderParser().parsebytes(data[at:gap].lstrip(b"\r\n") + b"\r\n\r\n")
        yield head, gap + 4, end
        at = end + 2
    raise malformed("the form has no end")


@contextmanager
def _mapped(body: Body) -> Iterator[bytes | mmap.mmap]:
    """The bytes of a body; of a large one without reading them all."""
    if body.in_memory:
        yield body.read()
        return
    with body.open() as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        yield mapped


def _boundary(headers: Message) -> bytes:
    boundary = headers.get_param("boundary", header="content-type")
    if not isinstance(boundary, str) or not boundary:
        raise malformed("the form has no boundary")
    return boundary.encode()
