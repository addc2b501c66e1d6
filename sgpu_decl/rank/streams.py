"""The standard streams of a rank: unbuffered as under `python -u`, with an index of time.

Text is in the file at once, even if the process is killed next. C's `print` writes a text and its
newline separately, which takes two system calls if unbuffered; ours writes whole lines.
"""

import builtins
import io
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Buffer

    from sgpu_decl.rank.secret_values import Redaction

_INDEX_NS = 10_000_000
_FULL = (28, 122)  # ENOSPC, EDQUOT
_STREAMS = ((1, "stdout"), (2, "stderr"))
_PLAIN = frozenset((str, int, float, bool))  # the text of these has no effects of its own


class LogFile(io.RawIOBase):
    """A log file. If the disk is full, it drops output and counts the bytes.

    The count is the length of a file beside it, `stdout.dropped`. That file is a hole, which needs
    no disk space, and it stays if the process is killed.

    The index beside it holds (monotonic ns, offset) pairs, 16 bytes each, at most one in 10 ms, so
    that a viewer can merge the ranks in the order of time.
    """

    mode = "wb"
    closed = False  # looked up at every write, and faster here than in the class above

    def __init__(self, descriptor: int, stream: str) -> None:
        self.name = f"<{stream}>"
        self.dropped = 0
        self._descriptor = descriptor
        self._stream = stream
        self._index = -1
        self._count = -1
        self._folder = ""
        self._due = 0
        self._redaction: Redaction | None = None

    def begin_index(self, folder: str) -> None:
        self._folder = folder
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            self._index = os.open(f"{folder}/{self._stream}.idx", flags, 0o600)
        except OSError:
            self._index = -1

    def close_index(self) -> None:
        """Close it after an entry for what is written later, such as a traceback."""
        if self._index < 0:
            return
        index, self._index = self._index, -1
        try:
            end = os.lseek(self._descriptor, 0, os.SEEK_END)
            os.write(index, _entry(time.monotonic_ns(), end))
        except OSError:  # the disk is full, or the user closed the stream
            pass
        try:
            os.close(index)
        except OSError:  # the user closed it, as `os.closerange` does
            return

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        super().close()
        self.closed = True

    def write(self, data: "Buffer") -> int:
        """Write all of it: the caller does not try again with the rest."""
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            return self._drop(data, error)
        moment = time.monotonic_ns()
        if moment >= self._due and self._index >= 0 and written:
            self._due = moment + _INDEX_NS
            self._add_to_index(moment, os.lseek(self._descriptor, 0, 1) - written)
        size = len(data) if type(data) is bytes else memoryview(data).nbytes
        if written < size:
            written += LogFile.write(self, memoryview(data).cast("B")[written:])
        return written

    def redact(self, redaction: "Redaction") -> None:
        def write(data: "Buffer") -> int:
            LogFile.write(self, redaction(bytes(data)))
            return memoryview(data).nbytes

        self._redaction = redaction
        self.write = write  # type: ignore[method-assign]  # no cost where nothing is redacted

    def finish(self) -> None:
        """Write what a redaction held back."""
        if self._redaction is not None:
            LogFile.write(self, self._redaction.finish())

    def _drop(self, data: "Buffer", error: OSError) -> int:
        if error.errno not in _FULL:
            raise error
        size = memoryview(data).nbytes
        self.dropped += size
        try:
            if self._count < 0:
                self._count = os.open(self._count_path, os.O_WRONLY | os.O_CREAT, 0o600)
            os.ftruncate(self._count, self.dropped)
        except OSError:
            return size  # `_finish` writes the count, if there is room by then
        return size

    @property
    def _count_path(self) -> str:
        return f"{self._folder}/{self._stream}.dropped"

    def forget_count(self) -> None:
        """Delete the count, since the log says it now."""
        if self._count >= 0:
            os.unlink(self._count_path)

    def _add_to_index(self, moment: int, offset: int) -> None:
        try:
            os.write(self._index, _entry(moment, offset))
        except OSError:
            self._index = -1


def _entry(moment: int, offset: int) -> bytes:
    return moment.to_bytes(8, "little") + offset.to_bytes(8, "little")


_LOGS: list[LogFile] = []


def wrap_streams(folder: str | None, redacted: str | None = None) -> None:
    """Replace stdout and stderr, once, and begin their indices in `folder`.

    A warm parent has no folder yet; its ranks call this again for theirs, since imports may hold on
    to the streams. `redacted` is a JSON list of what is not to be written.
    """
    if not _LOGS:
        import atexit

        _print_whole_lines(tuple(_wrap(descriptor, name) for descriptor, name in _STREAMS))
        atexit.register(_finish)
    if folder is not None:
        for log in _LOGS:
            log.begin_index(folder)
    if redacted is not None:
        import json

        from sgpu_decl.rank.secret_values import Redaction

        for log in _LOGS:
            log.redact(Redaction(json.loads(redacted)))


def close_indices() -> None:
    """Close the indices, to free their descriptors."""
    for log in _LOGS:
        log.close_index()


def _wrap(descriptor: int, name: str) -> io.TextIOWrapper:
    log = LogFile(descriptor, name)
    _LOGS.append(log)
    old = getattr(sys, name)
    errors = old.errors if old is not None else "backslashreplace"
    chosen = old is not None and "PYTHONIOENCODING" in os.environ
    encoding = old.encoding if chosen else "utf-8"
    stream = io.TextIOWrapper(log, encoding, errors, write_through=True)
    stream.mode = "w"  # type: ignore[misc]
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)
    return stream


def _print_whole_lines(streams: tuple[io.TextIOWrapper, ...]) -> None:
    """Replace `print` by one that writes once to these streams."""
    original = builtins.print

    def print(  # noqa: A001
        *values: object,
        sep: str | None = " ",
        end: str | None = "\n",
        file: "Any" = None,
        flush: bool = False,
    ) -> None:
        stream = sys.stdout if file is None else file
        if (
            stream in streams
            and isinstance(sep, str)
            and isinstance(end, str)
            and _PLAIN.issuperset(map(type, values))
        ):
            line = values[0] if len(values) == 1 else sep.join(map(str, values))
            stream.write(f"{line}{end}")
        else:
            original(*values, sep=sep, end=end, file=file, flush=flush)

    print.__module__, print.__qualname__ = "builtins", "print"  # so it is pickled as that
    print.__doc__ = original.__doc__
    builtins.print = print


def _finish() -> None:
    for log in _LOGS:
        log.finish()
    dropped = sum(log.dropped for log in _LOGS)
    if dropped:
        try:
            os.write(2, b"\nsgpu: %d bytes of output were dropped: the disk was full\n" % dropped)
            for log in _LOGS:
                log.forget_count()
        except OSError:
            return  # the disk is still full
