"""A state that was lost: an apply in production would launch everything again, beside the active
runs of the lost state."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Address
from sgpu_decl.model.backend_kinds import is_remote
from sgpu_decl.model.state import State
from sgpu_decl.planning.job_facts import DeclaredJobs
from sgpu_decl.planning.project import Project

if TYPE_CHECKING:
    from sgpu_decl.config.loaded import Loaded


def lost_state_checks(
    project: Project, loaded: "Loaded", state: State, planned: Callable[[Address], bool]
) -> Iterator[Diagnostic]:
    """Find what another state of this project and target left where a target with `mode:
    production` stages its launches. Only a state in which nothing is recorded is looked at: only
    such a one can stand for one that was lost."""
    if not loaded.production or state.resources or project.location.offline:
        return
    from sgpu_decl.config.run import RunConfig

    jobs = DeclaredJobs.of(loaded, "")
    blocks = [run.config.backend for run in loaded.runs if planned(run.address)]
    blocks += [jobs.backend_of(job) for job in loaded.jobs if planned(job.address)]
    own, seen = project.mark(state.lineage), set[str]()
    for block in dict.fromkeys(blocks):
        survey = project.survey(str(block.kind)) if is_remote(block.kind) else None
        if survey is None:
            continue
        field: dict[str, Any] = {"backend": block}  # a staging folder depends on that alone
        with suppress(BackendError):  # the checks of the runs say that it does not answer
            for path, mark in survey.other_states(RunConfig.model_construct(**field), own).items():
                if path not in seen:
                    seen.add(path)
                    folder = path.rpartition("/")[0]
                    yield Diagnostic(
                        code="state_lost",
                        summary=f"nothing is recorded in this state, and `{folder}` has launches "
                        f"of another state of this project and target (lineage `{mark.lineage}`, "
                        f"used last by `{mark.who}` at {mark.at:%Y-%m-%d %H:%M} UTC): an apply "
                        "would launch everything again",
                        place=None,
                        hint="restore that state, with `sgpu state push FILE` from a backup, or "
                        "name the store that has it. If it is gone for good, delete "
                        f"`{path}`: then this state begins anew, and active runs of the other "
                        "state go on",
                    )
