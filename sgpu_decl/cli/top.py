"""`sgpu top`."""

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.logs import warn_of_secrets
from sgpu_decl.cli.next_steps import complete
from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.run_names import file_and_names
from sgpu_decl.cli.terminal_output import answer, note, now, show, takes_keys, terminal_width
from sgpu_decl.errors import SgpuError, Usage
from sgpu_decl.views.status_json import watched_objects

if TYPE_CHECKING:
    from rich.text import Text

    from sgpu_decl.api import Session
    from sgpu_decl.cli.full_screen import FullScreen
    from sgpu_decl.model.attempt import AttemptRef
    from sgpu_decl.model.attempt_view import AttemptView
    from sgpu_decl.model.rank_activity import WatchedRun

_EACH = 1.0  # seconds between two looks
_SEARCHED = 5.0  # seconds between two looks for runs that were launched since
_OFF_TERMINAL = 120  # columns


@click.command("top")
@click.argument(
    "name", required=False, metavar="[NAME|FILE]", shell_complete=completed_by("runs", "files")
)
@project_options
@click.option("--once", is_flag=True, help="Print what it would show, as plain text, and exit.")
@output_option()
def command(*, source: ProjectSource, name: str | None, once: bool, output: str) -> int:
    """Watch runs: what each rank does and uses, and how far the run is, again each second.

    NAME is `train` or `train#8`; a glob shows several runs. FILE means all its runs. Without NAME
    and FILE, top shows the active runs, and Enter opens one of them.

    Arrows or `j` and `k` choose a rank, whose log is shown below. `q` leaves; the runs continue.
    `!` marks a rank that clearly differs from the others. With `-o json`, top prints one object and
    exits.
    """
    file, names = file_and_names((name,) if name else ())
    session = source.recorded(file)
    if file is not None:
        names = session.runs.names_of_file()
    refs = session.runs.find(*names) if names else session.runs.active()
    board = Board(session, refs, searches=not names)
    board.look()
    if names and len(refs) == 1 and board.runs[0].view.unavailable is not None:
        session.runs.require_here(refs[0])
    warn_of_secrets(session, refs)
    if output == "json":
        project = str(session.root) if session.in_project else None
        answer({"project": project, "runs": watched_objects(board.runs, now())})
    elif once or not refs:
        width = terminal_width(sys.stdout) or _OFF_TERMINAL
        show("\n".join(line.plain for line in board.frame(width, None)))
        if not refs:
            note("hint: `sgpu status` shows runs that have ended")
    else:
        _watch(board)
    return 0


def _watch(board: "Board") -> None:
    """Show the board until somebody leaves it.

    Raises:
        Usage: this is no terminal, or too small a one.
    """
    hint = "`--once` prints one frame"
    if not takes_keys():
        raise Usage("cannot show `sgpu top`: this is not a terminal", hint=complete(hint))
    from sgpu_decl.cli.full_screen import full_screen
    from sgpu_decl.views.top_frame import too_small

    if small := too_small(*shutil.get_terminal_size()):
        raise Usage(f"cannot show `sgpu top`: {small}", hint=hint)
    with full_screen() as screen:
        _show(screen, board)


def _show(screen: "FullScreen", board: "Board") -> None:
    due = time.monotonic() + _EACH
    key: str | None = None
    while key != "quit":
        width, height = screen.size
        board.press(key, width, height)
        screen.draw(board.frame(width, height))
        key = screen.key(due - time.monotonic())
        if time.monotonic() >= due:
            board.look()
            due = time.monotonic() + _EACH


class Board:
    """What is shown, and what is chosen in it. `searches` says that runs are added which were
    launched later."""

    def __init__(self, session: "Session", refs: "Sequence[AttemptRef]", *, searches: bool) -> None:
        self._session = session
        self._refs = list(refs)
        self._searches = searches
        self._searched = time.monotonic()
        self._watches = {ref: session.runs.watch(ref) for ref in refs}
        self._views: dict[AttemptRef, AttemptView] = {}
        self._several = len(refs) != 1 or searches
        self._opened = None if self._several else refs[0]
        self._row = 0
        self._places: dict[AttemptRef, int] = {}  # of the chosen rank in each run
        self.runs: list[WatchedRun] = []

    def look(self) -> None:
        """Look at all runs that go on."""
        if self._searches and time.monotonic() - self._searched >= _SEARCHED:
            self._searched = time.monotonic()
            for ref in self._session.runs.active():
                if ref not in self._watches:
                    self._refs.append(ref)
                    self._watches[ref] = self._session.runs.watch(ref)
        known = self._views
        going = [ref for ref in self._refs if ref not in known or known[ref].state.active]
        known |= self._session.runs.statuses(going)
        moment = now()
        self.runs = [self._watches[ref].look(known[ref], moment) for ref in self._refs]

    def frame(self, width: int, height: int | None) -> "list[Text]":
        """The lines of the screen; without a height, all that there is to say."""
        from sgpu_decl.views.top_frame import run_frame, runs_frame, too_small

        if height is not None and (small := too_small(width, height)):
            from rich.text import Text

            return [Text(small[:width])]
        log = self._log() if height is not None and self.runs else ()
        if self._opened is None:
            return runs_frame(
                self.runs, log, now=now(), width=width, height=height, chosen=self._row
            )
        run = self._run()
        return run_frame(
            run, log, now=now(), width=width, height=height, chosen=self._rank(run.view),
            back=self._several,
        )  # fmt: skip

    def press(self, key: str | None, width: int, height: int) -> None:
        """Do what a key says."""
        if not self.runs or key is None:
            return
        if self._opened is None:
            if key == "enter":
                self._opened = self._run().view.ref
            else:
                self._row = _moved(self._row, key, len(self.runs), 1)
            return
        if key == "escape" and self._several:
            self._opened = None
            return
        from sgpu_decl.views.top_frame import ranks_per_line

        run = self._run()
        per_line = ranks_per_line(run, now=now(), width=width, height=height)
        place = self._place(run.view)
        self._places[run.view.ref] = _moved(place, key, len(run.view.ranks), per_line)

    def _run(self) -> "WatchedRun":
        if self._opened is None:
            return self.runs[self._row]
        return self.runs[self._refs.index(self._opened)]

    def _place(self, view: "AttemptView") -> int:
        """Where the chosen rank stands; at first that is the one which failed first."""
        failed = view.first_cause.rank if view.first_cause is not None else None
        return min(self._places.get(view.ref, failed or 0), max(0, len(view.ranks) - 1))

    def _rank(self, view: "AttemptView") -> int | None:
        return view.ranks[self._place(view)].rank if view.ranks else None

    def _log(self) -> Sequence[str]:
        view = self._run().view
        rank = self._rank(view)
        if rank is None or view.unavailable is not None:
            return ()
        try:
            return self._watches[view.ref].newest_lines(view, rank)
        except SgpuError as error:
            return (error.message,)


def _moved(place: int, key: str, count: int, per_line: int) -> int:
    """The place that a key leads to among `count`, of which `per_line` stand on a line."""
    steps = {"up": -per_line, "down": per_line, "left": -1, "right": 1}
    ends = {"first": 0, "last": count - 1}
    to = ends.get(key, place + steps.get(key, 0))
    return to if 0 <= to < count else place
