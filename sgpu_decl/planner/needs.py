"""What a state needs of the stores of code and environments, and of the outputs of attempts."""

from collections.abc import Iterable

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.run_outputs import outputs_read
from sgpu_decl.model.state import Resource, State
from sgpu_decl.planner.jobs.launched_run import launched_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Digests of code, and of environments or the locks that they are built from; and the attempts
    whose output is read."""

    code: frozenset[str]
    environments: frozenset[str]
    outputs: frozenset[AttemptRef]


def needs_of(state: State, planned: Iterable[LaunchInputs] = ()) -> Needs:
    """What launches that are active, under way or `planned` use, what the next plan compares with
    (the last attempt of each resource), and what the jobs that are there have staged."""
    launches = [*_launches(state), *planned]
    return Needs(
        code=frozenset(item.code_digest for item in launches if item.code_digest),
        environments=frozenset(
            item.environment_digest for item in launches if item.environment_digest
        ),
        outputs=frozenset(ref for item in launches for ref in outputs_read(item.spec)),
    )


def _launches(state: State) -> Iterable[LaunchInputs]:
    yield from (resource.last.inputs for resource in state.resources.values() if resource.last)
    yield from (item.inputs for item in state.active)
    yield from (intent.launch.inputs for intent in state.intents if intent.launch)
    yield from (inputs for job in _jobs(state) if (inputs := launched_by(job.spec)))


def _jobs(state: State) -> Iterable[Resource]:
    for resource in state.resources.values():
        if resource.address.kind is Kind.JOB and not resource.gone:
            yield resource
    yield from (intent.job for intent in state.intents if intent.job)
