"""What a job launches of the project, as parts of the job's spec: a run, or what its tasks are."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.codec import key_of
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.job import NOTEBOOK, ONE, OURS_IN_TASK, RUN, SCRIPT, STAGED, TASKS
from sgpu_decl.model.jsonable import Json, Spec, canonical, digest
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.plan import Change
from sgpu_decl.planner.fingerprint import token

# What a job decides, or says itself.
_OF_THE_JOB = frozenset(
    {"backend", "description", "lifecycle", "max_parallel", "on_active", "tags", "until"}
)
_DERIVED = "_task"
"""How the keys of a task end below which its platform has what it runs."""
# The keys of what is staged, and the fields of a launch.
_STAGED = {
    key_of(item).removesuffix("_digest"): item.name
    for item in fields(LaunchInputs)
    if item.name not in ("spec", "fingerprint")
}


def staged_inputs(run: DesiredRun, inputs: LaunchInputs) -> LaunchInputs:
    """With what a job's run takes along: of its packages only those of a declared environment."""
    own = run.launch_inputs(inputs.spec, inputs.fingerprint)
    return own if run.environment else replace(own, packages_digest=None)


def run_part(run: DesiredRun) -> dict[str, Json]:
    """What a job's spec says of what it launches: the run, and what it takes along. Of a file of
    the repository, what it takes along."""
    spec = {key: item for key, item in run.spec.fields.items() if key not in _OF_THE_JOB}
    inputs = staged_inputs(run, LaunchInputs(spec=run.spec, fingerprint=""))
    staged = {key: getattr(inputs, name) for key, name in _STAGED.items()}
    part = {STAGED: {key: item for key, item in staged.items() if item is not None}}
    if run.address.kind is not Kind.RUN:
        return dict(part)
    return {RUN: {"name": run.address.name, **spec}, **part}


def launches_in(spec: Spec) -> dict[str, LaunchInputs]:
    """What the job with that spec launches again and again, by the task: `ONE` of a job that
    launches one run. The spec of a run has its name, that of a file of the repository its path, and
    there is no fingerprint. A task that takes nothing along has none."""
    job = spec.fields
    tasks = job.get(TASKS)
    parts: dict[str, Mapping[str, Json]] = {}
    if isinstance(job.get(RUN), Mapping):
        parts = {ONE: job}
    elif isinstance(tasks, Mapping):
        parts = {
            key: task for key, task in tasks.items() if isinstance(task, Mapping) and STAGED in task
        }
    return {key: _inputs(part, job.get("backend", {})) for key, part in parts.items()}


def launches_of(change: Change) -> Iterator[LaunchInputs]:
    """What a change launches, or what the job that it makes launches."""
    if change.launch is None:
        return
    inputs = change.launch.inputs
    yield from (change.kind is Kind.JOB and launches_in(inputs.spec).values()) or (inputs,)


def _inputs(part: Mapping[str, Json], backend: Json) -> LaunchInputs:
    run, staged = part.get(RUN), part.get(STAGED)
    given = staged if isinstance(staged, Mapping) else {}
    digests = {_STAGED[key]: str(value) for key, value in given.items() if key in _STAGED}
    own: dict[str, Json] = dict(run) if isinstance(run, Mapping) else {}
    if not own:
        own = {key: part[key] for key in (SCRIPT, NOTEBOOK) if key in part}
        if NOTEBOOK in own:
            own[STAGED] = staged  # its digest
    return LaunchInputs(spec=Spec.of({**own, "backend": backend}), fingerprint="", **digests)


def without_staged(spec: Spec) -> Spec:
    """The spec of a job without what the run that it launches takes along, and without the tasks
    that its backend makes of that: they name a folder of the user who plans, and a mark of the
    lineage. A job that launches no run has its tasks from the file; of several tasks, those that
    take something along keep the digests of that, and lose what their backend makes of it."""
    job = spec.fields
    if RUN in job:
        return Spec.of({key: item for key, item in job.items() if key not in (STAGED, TASKS)})
    tasks = job.get(TASKS)
    if not isinstance(tasks, Mapping) or not launches_in(spec):
        return Spec.of({key: item for key, item in job.items() if key != STAGED})
    return Spec.of({**job, TASKS: {key: _told(task) for key, task in tasks.items()}})


def _told(task: Json) -> Json:
    if not isinstance(task, Mapping) or STAGED not in task:
        return task
    return {key: item for key, item in task.items() if not follows(key)}


def follows(key: str) -> bool:
    """Whether a key of a task has what its platform runs, which follows from what is staged."""
    return key.endswith(_DERIVED) and key not in OURS_IN_TASK


def mark_of(lineage: str, job: Address, spec: Spec, task: str = ONE) -> str:
    """What tells one version of what a job launches from all others: the same run with the same
    code, in the same environment, has the same. Each task has its own."""
    part: Mapping[str, Json] = spec.fields
    address = job
    if task != ONE:
        tasks = spec.fields.get(TASKS)
        own = tasks.get(task) if isinstance(tasks, Mapping) else None
        part, address = own if isinstance(own, Mapping) else {}, replace(job, key=task)
    inputs = [part.get(RUN), part.get(STAGED), spec.fields.get("backend")]
    return token(lineage, address, 0, digest(canonical(inputs)))
