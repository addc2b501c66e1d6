"""`sgpu wait`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.desktop_notice import notify_option, ring
from sgpu_decl.cli.error_exit import show_error
from sgpu_decl.cli.options import ProjectSource, output_option, project_options, read_duration
from sgpu_decl.cli.run_endings import FollowEnd, outcome_error, show_endings
from sgpu_decl.cli.run_names import open_named
from sgpu_decl.cli.terminal_output import answer, note, now
from sgpu_decl.views.status_json import status_objects

if TYPE_CHECKING:
    from sgpu_decl.model.attempt_view import AttemptView


@click.command("wait")
@click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="NAME|FILE...",
    shell_complete=completed_by("runs", "files"),
)
@project_options
@click.option("--timeout", metavar="D", help="Give up after this time, such as `10m`.")
@notify_option
@output_option()
def command(
    *, source: ProjectSource, names: tuple[str, ...], timeout: str | None, notify: bool, output: str
) -> int:
    """Wait until all named runs have ended.

    NAME is `train`, `run.train`, `train#8` or a glob. A glob does not match destroyed runs. FILE
    means all its runs.

    Exit codes: 0 all succeeded, 1 error or timeout, 5 a run did not succeed, 130 interrupted.
    """
    limit = read_duration(timeout) if timeout is not None else None
    session, names = open_named(source, names)
    refs = session.runs.find_active(*names)
    active = [str(ref) for ref, one in session.runs.statuses(refs).items() if one.state.active]
    if active:
        more = f" and {len(active) - 5} more" if len(active) > 5 else ""
        note(f"waiting for {', '.join(active[:5])}{more}")
    session.runs.wait(refs, limit, silent=_say_silent)
    views = session.runs.describe(refs)
    error = outcome_error(session, views, FollowEnd.ENDED)
    if active:
        from sgpu_decl.cli.report import upload_reports

        upload_reports(session, (view for view in views if str(view.ref) in active))
    if notify:
        ring(views)
    if output == "json":
        answer({"runs": status_objects(views)}, error=error)
    else:
        show_endings(session, views)
        if error is not None:
            show_error(error)
    return error.exit_code if error else 0


def _say_silent(views: "Sequence[AttemptView]") -> None:
    """Say which runs cannot be asked for a while: they are waited for all the same."""
    from sgpu_decl.views.status_text import unanswered_notes

    for line in unanswered_notes(views, now()):
        note(line)
