"""A form with one file, `multipart/form-data` (RFC 7578), read piece by piece. `requests` makes
such forms in memory, also where the file has hundreds of megabytes."""

import io
from collections.abc import Mapping
from typing import BinaryIO
from uuid import uuid4


class UploadForm(io.RawIOBase):
    """A stream that knows its length. It can be read again from its beginning, as the SDK does
    where it tries once more.

    Args:
        fields: the texts.
        name: of the field that has the file.
        file: read from its beginning.
    """

    def __init__(self, fields: Mapping[str, str], name: str, file: BinaryIO) -> None:
        super().__init__()
        boundary = uuid4().hex
        texts = "".join(
            f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{text}\r\n'
            for field, text in fields.items()
        )
        head = (
            f'{texts}--{boundary}\r\nContent-Disposition: form-data; name="{name}"; '
            f'filename="{name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
        )
        self.content_type = f"multipart/form-data; boundary={boundary}"
        self._head, self._tail = head.encode(), f"\r\n--{boundary}--\r\n".encode()
        self._file = file
        self._file_size = file.seek(0, io.SEEK_END)
        self._at = 0

    def __len__(self) -> int:
        return len(self._head) + self._file_size + len(self._tail)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self)}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        remaining = len(self) - self._at if size is None or size < 0 else size
        data = b""
        while remaining and (piece := self._piece(remaining)):
            data += piece
            remaining -= len(piece)
            self._at += len(piece)
        return data

    def _piece(self, size: int) -> bytes:
        """At most so many bytes from where it is, of one of the three."""
        at = self._at
        if at < len(self._head):
            return self._head[at : at + size]
        at -= len(self._head)
        if at < self._file_size:
            self._file.seek(at)
            return self._file.read(size)
        at -= self._file_size
        return self._tail[at : at + size]
