"""`--json-into`: events of a command in a file, beside what it prints. Nothing that happens to the
file harms the command: after the first write that fails, no other is tried."""

import os
import select
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from sgpu_decl import __version__
from sgpu_decl.cli.next_steps import complete_plan, plan_object
from sgpu_decl.cli.terminal_output import note, now
from sgpu_decl.errors import Interrupted, SgpuError
from sgpu_decl.system_errors import error_text

if TYPE_CHECKING:
    from sgpu_decl.api import Prepared
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.model.attempt_view import AttemptView
    from sgpu_decl.model.event import ApplyEvent
    from sgpu_decl.model.jsonable import Json

_PATIENCE = 1000  # milliseconds for a reader of a pipe that is full

event_option = click.option(
    "--json-into",
    "events",
    metavar="FILE",
    help="Write each event to FILE, as one JSON object a line.",
)


class EventFile:
    """The open file, or none."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._file = None if path is None else _opened(path)
        self._size = 0  # of whole lines

    def version(self) -> None:
        self._write("version", {"tool_version": __version__})

    def plan(self, prepared: "Prepared") -> None:
        """A plan and its checks."""
        if self._file is None:
            return
        from sgpu_decl.views.github_commands import check_finding

        self._write("plan", {"plan": plan_object(prepared)})
        self.diagnostics([check_finding(check) for check in complete_plan(prepared.plan).checks])

    def change(self, event: "ApplyEvent") -> None:
        if self._file is None:
            return
        from sgpu_decl.views.event_stream import change_event

        if (written := change_event(event)) is not None:
            self._write(*written)

    def run(self, view: "AttemptView") -> None:
        if self._file is None:
            return
        from sgpu_decl.views.event_stream import run_event

        self._write("run_state", run_event(view))

    def diagnostics(self, findings: "Sequence[Diagnostic]") -> None:
        if self._file is None:
            return
        from sgpu_decl.views.event_stream import diagnostic_event

        for finding in findings:
            self._write("diagnostic", diagnostic_event(finding))

    def ended(self, error: SgpuError | None, exit_code: int = 0) -> int:
        """The last line; returns the exit code, which is that of the error if there is one."""
        code = exit_code if error is None else error.exit_code
        if self._file is not None:
            from sgpu_decl.views.event_stream import summary_event

            self._write("summary", summary_event(code, error))
        return code

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None

    def _write(self, kind: str, fields: "dict[str, Json]") -> None:
        if self._file is None:
            return
        from sgpu_decl.views.event_stream import event_line

        line = event_line(kind, fields, now=now())
        try:
            _write_whole(self._file, line)
        except OSError as error:
            self._give_up(error)
        else:
            self._size += len(line)

    def _give_up(self, error: OSError) -> None:
        assert self._file is not None  # noqa: S101  it was written to
        if stat.S_ISREG(os.fstat(self._file).st_mode):
            with suppress(OSError):
                os.ftruncate(self._file, self._size)  # the line that was cut
        self.close()
        with suppress(OSError):
            note(f"note: no more events are written to `{self._path}`: {error_text(error)}")


NO_EVENTS = EventFile()


@contextmanager
def event_file(path: str | None) -> Iterator[EventFile]:
    """Open the file, and write its first line; if an error ends the command, its last one too.

    Raises:
        SgpuError: it cannot be written, or holds something else.
    """
    events = EventFile(path)
    events.version()
    try:
        yield events
    except SgpuError as error:
        events.diagnostics(error.diagnostics)
        events.ended(error)
        raise
    except KeyboardInterrupt:
        events.ended(Interrupted("interrupted"))
        raise
    finally:
        events.close()


def _opened(path: str) -> int:
    """The file, empty. A pipe is opened only if somebody reads it, and never waited for long.

    Raises:
        SgpuError: it cannot be opened, or holds something else than events.
    """
    from sgpu_decl.views.event_stream import EVENT_ENDINGS, FIRST_KEYS

    try:
        special = os.path.exists(path) and not os.path.isfile(path)
        if not special and not path.endswith(EVENT_ENDINGS):
            raise SgpuError(
                f"`{path}` is no name for events",
                hint=f"give `--json-into` a name that ends with one of {', '.join(EVENT_ENDINGS)}: "
                "such files are told from code",
                code="unwritable",
            )
        if os.path.isfile(path):
            with open(path, "rb") as file:
                head = file.read(len(FIRST_KEYS))
            if head not in (b"", FIRST_KEYS):
                raise SgpuError(
                    f"`{path}` exists and holds no events: it is not overwritten",
                    hint="give `--json-into` another name, or move that file away",
                    code="exists",
                )
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(path, flags, 0o600)
    except OSError as error:
        raise SgpuError(
            f"events cannot be written to `{path}`: {error_text(error)}",
            hint="give `--json-into` a file in a folder that you may write to, or a pipe that is "
            "being read",
            code="unwritable",
        ) from None


def _write_whole(file: int, line: bytes) -> None:
    """Write a line to a file, or to a pipe whose reader takes it within its time.

    Raises:
        OSError: it does not, or the disk is full.
    """
    left = memoryview(line)
    while left:
        try:
            left = left[os.write(file, left) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(file, select.POLLOUT)
            if not poll.poll(_PATIENCE):
                raise
