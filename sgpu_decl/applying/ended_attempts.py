"""Recording attempts that have ended: by commands that follow them, and by whoever sees an end."""

from collections.abc import Collection

from sgpu_decl.applying.launch_records import unrecorded
from sgpu_decl.applying.recovery import refresh
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import Locked, SgpuError
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.backend_kinds import is_remote
from sgpu_decl.planning.project import Project
from sgpu_decl.storing.state_store import AT_ONCE


def record_ended(project: Project) -> tuple[Diagnostic, ...]:
    """Record what has ended since the last look, and return what was noticed; left to the next
    command where another sgpu is at work, or the store takes nothing."""
    try:
        if not has_loose_ends(project):
            return ()
        with project.writing("record", patience=AT_ONCE) as writer:
            writer.push_kept()
            return refresh(writer, project.backend)
    except Locked:
        return ()
    except SgpuError as error:
        return (unrecorded(error),)


def record_seen(project: Project, ends: Collection[AttemptView]) -> None:
    """Record ends that a command has seen, for those who cannot see them; left to the next command
    where another sgpu is at work, or this user may not write.

    A state of one machine needs that not: whoever reads it reads the folders of attempts, too. What
    a lost attempt left on a machine is stopped by commands that change something alone.
    """
    if project.location.offline or project.shared_place is None:
        return
    refs = {
        view.ref for view in ends if view.state is not AttemptState.LOST or is_remote(view.backend)
    }
    try:
        if not refs:
            return
        with project.writing("record", patience=AT_ONCE) as writer:
            refresh(writer, project.backend, refs)
    except SgpuError:
        return


def has_loose_ends(project: Project) -> bool:
    """Whether the state has open intents, or attempts that may have ended."""
    state = project.states.read()
    return state is not None and bool(state.intents or state.active)
