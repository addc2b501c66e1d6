"""Masks secret values in a stream of bytes, even if a value is written in pieces."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MASK = b"***"


class Redaction:
    """Replaces every spelling of a value by `***`, the longest first.

    If the stream ends with the beginning of a value, that part is held back until more comes or
    `finish` is called. No spelling has a newline, so whole lines are never held back.
    """

    def __init__(self, spellings: "Sequence[str]") -> None:
        encoded = (text.encode("utf-8", "surrogateescape") for text in spellings)
        self._spellings = sorted(encoded, key=len, reverse=True)
        self._tail = b""
        self._finished = False

    def __call__(self, data: bytes) -> bytes:
        """Return what can be written now."""
        data, self._tail = self._tail + data, b""
        for spelling in self._spellings:
            if spelling in data:
                data = data.replace(spelling, _MASK)
        if self._finished or data.endswith(b"\n"):
            return data
        overlap = max((_overlap(data, spelling) for spelling in self._spellings), default=0)
        end = len(data) - overlap
        self._tail = data[end:]
        return data[:end]

    def finish(self) -> bytes:
        """Return what was held back, and hold back nothing more."""
        self._finished = True
        return self(b"")


def _overlap(data: bytes, spelling: bytes) -> int:
    """Return how many bytes at the end of `data` are the beginning of the spelling."""
    for length in range(min(len(data), len(spelling) - 1), 0, -1):
        if data.endswith(spelling[:length]):
            return length
    return 0
