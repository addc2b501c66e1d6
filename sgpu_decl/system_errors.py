"""Errors of the operating system in words, `EIO on fsync of ...`, and the next step for each."""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The disk is full, or the user's quota."""

_DEFAULT = "check that it exists, has the right kind, and that you may read and write it"
_FAILING = "the disk, or the connection to it, fails: see the kernel's log, and try again"
_PERMISSION = "make it readable and writable for you"
_ADVICE: Mapping[int, str] = MappingProxyType(
    {
        **dict.fromkeys(FULL, "free some space and try again; `sgpu gc` deletes what is not used"),
        **dict.fromkeys((errno.EACCES, errno.EPERM), _PERMISSION),
        **dict.fromkeys((errno.EIO, errno.EREMOTEIO, errno.ESTALE), _FAILING),
        **dict.fromkeys(
            (errno.EAGAIN, errno.ENOMEM), "end other processes, or wait until some have ended"
        ),
        errno.EFBIG: "raise the limit on the size of files (`ulimit -f`), and try again",
        errno.EROFS: "its file system is mounted read-only: use another folder",
        errno.EEXIST: "something else stands there already: move it away",
        errno.ENOTDIR: "a file stands where a folder is expected: move it away",
        errno.ELOOP: "a symbolic link leads to itself: remove it",
        errno.EMFILE: "raise the limit on open files (`ulimit -n`), and try again",
        errno.ENFILE: "the machine has too many files open: try again later",
        errno.ENAMETOOLONG: "choose a shorter name",
    }
)


@contextmanager
def path_in_errors(path: "str | os.PathLike[str]") -> Iterator[None]:
    """Add the path of a file to errors of calls on its descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def error_text(error: OSError) -> str:
    """Return number, operation and place: ``EIO on fsync of `/x` (input/output error)``."""
    words = (error.strerror or str(error) or type(error).__name__).lower()
    if error.errno is None:
        return words
    number = errno.errorcode.get(error.errno, f"error {error.errno}")
    operation = _operation(error)
    on = f" on {operation}" if operation else ""
    of = f" of `{os.fsdecode(error.filename)}`" if isinstance(error.filename, str | bytes) else ""
    return f"{number}{on}{of} ({words})"


def advice(error: OSError) -> str:
    """Return the next step for the user."""
    return _ADVICE.get(error.errno or 0, _DEFAULT)


def _operation(error: OSError) -> str | None:
    """Return the name of the call that failed, from the source of the innermost frame."""
    import ast
    import linecache
    from itertools import islice

    trace = error.__traceback__
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    position = next(islice(code.co_positions(), trace.tb_lasti // 2, None), None)
    if position is None or None in position:
        return None
    first, last, start, end = position
    lines = [line.encode() for line in linecache.getlines(code.co_filename)[first - 1 : last]]  # type: ignore[operator]
    if not lines:
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        (statement,) = ast.parse(b"".join(lines).decode()).body
    except (SyntaxError, ValueError):
        return None
    # Buffered bytes are written when the file is flushed or closed. An error at the end of
    # `with open(...)` has the place of the statement; since Python 3.13, that of `open`.
    if isinstance(statement, ast.With):
        return "write"
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    name = ast.unparse(statement.value.func).rpartition(".")[2]
    closed = name == "open" and (error.filename is None or isinstance(error.__context__, OSError))
    return "write" if closed or name in ("flush", "close") else name
