"""The standard streams: there from the start, and given up where they take nothing any more."""

import os
import sys
from typing import TextIO

from sgpu_decl.errors import SgpuError


def open_closed_streams() -> frozenset[str]:
    """Open `/dev/null` where a standard stream is closed; return the names of those.

    Without that the next file that is opened, the state's database maybe, would get the number of
    stdout or stderr, and what a child process prints would be written into it.
    """
    closed = frozenset(item for item in ("stdin", "stdout", "stderr") if getattr(sys, item) is None)
    if not closed:
        return closed
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest free number is taken
        os.set_inheritable(number, True)  # noqa: FBT003  it takes no keyword
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if name in closed:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  stays open until the end
    return closed


def flush_error(stream: TextIO) -> OSError | None:
    """Why a stream does not take what is left in its buffer. It goes to `/dev/null` from then on,
    since Python would try again at exit and fail with a traceback."""
    try:
        stream.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return error
    return None


def stdout_closed_error() -> SgpuError:
    return SgpuError(
        "cannot write output: stdout is closed",
        hint="send it somewhere, such as `> /dev/null`",
        code="system",
    )


def stdout_write_error(error: OSError) -> SgpuError:
    return SgpuError(
        f"the answer cannot be written to stdout: {(error.strerror or str(error)).lower()}",
        hint="send it elsewhere, or make room there; what was launched goes on: see `sgpu status`",
        code="system",
    )
