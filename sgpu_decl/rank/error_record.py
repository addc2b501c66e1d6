"""The failure of a rank: shown on stderr, and written to a file for the supervisor.

The exception of a called function is kept beside it (`error.pkl`) if its pickle gives back the same
type and text, else its type, arguments and attributes. A secret is never part of it.
"""

import os
import sys
import time

from sgpu_decl.rank.attempt_folder import UnusableSpec, write_file
from sgpu_decl.rank.secret_values import SecretValues

TYPE_CHECKING = False
if TYPE_CHECKING:
    import traceback
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Any

    from sgpu_decl.rank.attempt_folder import AttemptFolder

_MESSAGE = 2_000
_TRACEBACK = 60_000
_OURS = "sgpu_decl.rank."
_MACHINERY = ("importlib", "importlib._bootstrap", "importlib._bootstrap_external")


class ErrorRecord:
    """The file `path`, `error.json`; `secrets` are left out of it."""

    def __init__(
        self,
        folder: "AttemptFolder",
        path: str,
        spec: "Mapping[str, Any] | None" = None,
        secrets: "Mapping[str, str] | None" = None,
    ) -> None:
        self.path = path
        self.secrets = SecretValues(secrets or {})
        self._folder = folder
        self._code_dir = spec["code_dir"] if spec is not None else None
        self._code_root = spec["code_root"] if spec is not None else None

    def fail(self, error: BaseException) -> bool:
        """Show and record an exception; say whether it is recorded in this attempt's own folder.

        It is shown first, since this process may be stopped at any time. A hook of the user's is
        called last, since it may end the process.
        """
        moment = time.monotonic_ns()

        error.__traceback__ = _own_frames_left_out(error.__traceback__)
        if type(error) is UnusableSpec:
            _say(f"sgpu: {error}\n")
            return self._write(error, moment, "launch_failed_user", None)
        text = traceback_text(error, self._code_dir, self._code_root)
        failure = _failure(error)
        if sys.excepthook is sys.__excepthook__:
            _say(text)
            return self._write(error, moment, failure, text)
        recorded = self._write(error, moment, failure, text)
        _call_hook(error, text)
        return recorded

    def leave(self, error: SystemExit) -> None:
        """Record the text of `sys.exit`; Python shows it itself."""
        self._write(error, time.monotonic_ns(), "exit_code", None)

    def _write(self, error: BaseException, moment: int, failure: str, trace: str | None) -> bool:
        import json

        if type(error) is not UnusableSpec and self._folder.replaced():
            return False
        name = type(error).__qualname__
        if type(error).__module__ not in ("builtins", "__main__"):
            name = type(error).__module__ + "." + name
        record = {
            "v": 1,
            "class": failure,
            "type": "entrypoint" if type(error) is UnusableSpec else name,
            "message": self._shown(_text_of(error))[:_MESSAGE],
            "traceback": _cut(self._shown(trace)) if trace is not None else None,
            "time_ns": moment,
            "wall_ns": time.time_ns(),
            "kinds": _kinds(error),
            "missing": self._missing(error),
        }
        text = json.dumps(record).encode("utf-8")
        try:
            write_file(self.path, lambda file: file.write(text))
        except OSError as problem:
            _say(f"sgpu: the failure could not be recorded: {problem}\n")
            return False
        return True

    def _shown(self, text: str) -> str:
        """Return a text without colours and secrets. Ray colours the text of its exceptions
        (`RayTaskError` in ray/exceptions.py), even if nobody looks at a terminal."""
        if "\x1b[" in text:
            import re

            text = re.sub(r"\x1b\[[0-9;]*m", "", text)
        return self.secrets.hide(text)

    def _missing(self, error: BaseException) -> str | None:
        """Return the path of a file that was not found, relative to the code; None if the error is
        not about such a file."""
        if self._code_dir is None or self._code_root is None:
            return None
        for one in (error, error.__cause__, error.__context__):
            name = one.filename if isinstance(one, FileNotFoundError) else None
            if isinstance(name, str):
                path = os.path.relpath(name, self._code_dir)
                own = not path.startswith("../") or not os.path.isabs(name)
                there = os.path.lexists(os.path.join(self._code_dir, path))
                return path if own and not there else None
        return None


def _call_hook(error: BaseException, text: str) -> None:
    """Let the user's hook show it. If the hook fails, show both errors as Python does."""
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception as broken:  # noqa: BLE001 - the user's code
        trace = traceback_text(broken, None, None)
        _say(f"Error in sys.excepthook:\n{trace}\nOriginal exception was:\n{text}")


def _say(text: str) -> None:
    try:
        sys.stderr.write(text)
    except (AttributeError, OSError, ValueError):
        return  # the user took the stream away, or closed it


def _cut(text: str) -> str:
    if len(text) <= _TRACEBACK:
        return text
    return text[: _TRACEBACK // 2] + "\n...\n" + text[-_TRACEBACK // 2 :]


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever the user's `__str__` raises
        return "(its text cannot be shown)"


def _failure(error: BaseException) -> str:
    """Return the failure class of an exception that ends a rank. If Ray's memory monitor kills a
    worker, the driver that waits for it gets an exception that says so."""
    if type(error) is SystemExit:
        return "exit_code"
    kinds = {(kind.__module__, kind.__name__) for kind in type(error).__mro__}
    return "oom" if ("ray.exceptions", "OutOfMemoryError") in kinds else "exception"


def _kinds(error: BaseException) -> list[str]:
    """Return the names of an exception's classes, and of its cause's."""
    return [
        kind.__name__
        for one in (error, error.__cause__)
        if one is not None
        for kind in type(one).__mro__
    ]


def _own_frames_left_out(trace: "TracebackType | None") -> "TracebackType | None":
    """Leave out the first frames of a traceback: ours, and those of the import of the user's
    code."""
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__"))
        if not name.startswith(_OURS) and name not in _MACHINERY:
            break
        trace = trace.tb_next
    return trace


def traceback_text(error: BaseException, code_dir: str | None, code_root: str | None) -> str:
    """Return the text, in which each file of the run's code has the name that the user knows.

    The lines shown are those of the run's own copy, which ran.

    Args:
        code_dir: where the copy lies.
        code_root: the folder that was copied; empty if it is on another machine, so that names are
            relative to it; None if there is no copy.
    """
    import traceback

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
    whole: "traceback.TracebackException",
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
