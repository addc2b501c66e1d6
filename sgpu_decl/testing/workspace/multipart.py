"""Forms as browsers and the SDK send them: `multipart/form-data` (RFC 7578)."""

from email.message import Message
from email.parser import BytesHeaderParser

from sgpu_decl.testing.workspace.routing import Request, malformed

__all__ = ["form"]


def form(request: Request) -> dict[str, bytes]:
    """The fields of a form, files among them. Raises ApiError, 400, for a body that is none."""
    boundary = _boundary(request.headers)
    parts = (b"\r\n" + request.body).split(b"\r\n--" + boundary)
    fields = {}
    for part in parts[1:-1]:
        head, gap, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = BytesHeaderParser().parsebytes(head).get_param("name", header="content-disposition")
        if not gap or not isinstance(name, str):
            raise malformed("a part of the form has no name")
        fields[name] = content
    if not parts[-1].startswith(b"--"):
        raise malformed("the form has no end")
    return fields


def _boundary(headers: Message) -> bytes:
    boundary = headers.get_param("boundary", header="content-type")
    if not isinstance(boundary, str) or not boundary:
        raise malformed("the form has no boundary")
    return boundary.encode()
