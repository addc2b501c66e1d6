"""The text of a traceback that names the user's files, without frames of sgpu."""

import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def traceback_text(error: BaseException, code_dir: str | None, code_root: str | None) -> str:
    """Return the text, in which each file of the run's code has the name that the user knows.

    The lines shown are those of the run's own copy, which ran.

    Args:
        code_dir: where the copy lies.
        code_root: the folder that was copied; empty if it is on another machine, so that names are
            relative to it; None if there is no copy.
    """
    whole = traceback.TracebackException.from_exception(error)
    own = traceback_text.__code__.co_filename.rpartition("/")[0] + "/"
    for one in _all(whole):
        one.stack[:] = [frame for frame in one.stack if not frame.filename.startswith(own)]
        if code_dir is None or code_root is None:
            continue
        copied = code_dir + "/"
        shown = code_root + "/" if code_root else ""
        for frame in one.stack:
            if frame.filename.startswith(copied):
                frame.filename = shown + frame.filename.removeprefix(copied)
        name = getattr(one, "filename", None)  # of a SyntaxError
        if name is not None and name.startswith(copied):
            one.filename = shown + name.removeprefix(copied)
    return "".join(whole.format())


def _all(
    whole: traceback.TracebackException,
) -> "Iterator[traceback.TracebackException]":
    """Yield the exception, its causes, and the members of groups."""
    waiting = [whole]
    while waiting:
        one = waiting.pop()
        yield one
        members = getattr(one, "exceptions", None) or ()  # from Python 3.11 on
        waiting += [
            inner for inner in (one.__cause__, one.__context__, *members) if inner is not None
        ]
