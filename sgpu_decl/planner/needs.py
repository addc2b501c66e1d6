"""What a state needs of the stores of code and environments, and of the outputs of attempts; what
active attempts need of the folders of others."""

from collections import defaultdict
from collections.abc import Iterable
from typing import cast

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.run_outputs import outputs_read, pins
from sgpu_decl.model.state import Attempt, Resource, State
from sgpu_decl.planner.jobs.launched_run import launches_in


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
    yield from (inputs for job in _jobs(state) for inputs in launches_in(job.spec).values())


def _jobs(state: State) -> Iterable[Resource]:
    for resource in state.resources.values():
        if resource.address.kind is Kind.JOB and not resource.gone:
            yield resource
    yield from (intent.job for intent in state.intents if intent.job)


def needed_by_active(attempts: Iterable[Attempt]) -> dict[AttemptRef, AttemptRef]:
    """The attempts that active ones look at, each with one of these.

    Of a run that an active one comes after, that is the newest attempt that was launched before it;
    of a matrix, one for each combination.
    """
    by_name: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_name[attempt.ref.address.name].append(attempt)
    needed: dict[AttemptRef, AttemptRef] = {}
    for active in (one for group in by_name.values() for one in group if one.state.active):
        read = pins(active.inputs.spec.text)
        for name, number in read.items():
            for other in by_name.get(name, ()):
                if other.ref.number == number:
                    needed[other.ref] = active.ref
        for name in cast("tuple[str, ...]", active.inputs.spec.fields.get("after", ())):
            newest: dict[Address, AttemptRef] = {}
            for other in by_name.get(name, ()):
                if other.created_at <= active.created_at:
                    before = newest.get(other.ref.address, other.ref)
                    newest[other.ref.address] = max(before, other.ref)
            needed.update(dict.fromkeys(newest.values(), active.ref))
    return needed
