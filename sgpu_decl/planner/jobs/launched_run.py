"""The run that a job launches, as a part of the job's spec."""

from collections.abc import Mapping
from dataclasses import fields, replace

from sgpu_decl.model.address import Address
from sgpu_decl.model.codec import key_of
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.job import RUN, STAGED
from sgpu_decl.model.jsonable import Json, Spec, canonical, digest
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.planner.fingerprint import token

# What a job decides, or says itself.
_OF_THE_JOB = frozenset(
    {"backend", "description", "lifecycle", "max_parallel", "on_active", "tags", "until"}
)
_TASKS = "tasks"
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
    """What a job's spec says of the run that it launches: the run, and what it takes along."""
    spec = {key: item for key, item in run.spec.fields.items() if key not in _OF_THE_JOB}
    inputs = staged_inputs(run, LaunchInputs(spec=run.spec, fingerprint=""))
    staged = {key: getattr(inputs, name) for key, name in _STAGED.items()}
    return {
        RUN: {"name": run.address.name, **spec},
        STAGED: {key: item for key, item in staged.items() if item is not None},
    }


def launched_by(spec: Spec) -> LaunchInputs | None:
    """The launch that the job with that spec makes again and again: the spec of the run has its
    name, and there is no fingerprint. None for a job that launches no run of the project."""
    job = spec.fields
    run, staged = job.get(RUN), job.get(STAGED)
    if not isinstance(run, Mapping):
        return None
    parts = staged if isinstance(staged, Mapping) else {}
    digests = {_STAGED[key]: str(value) for key, value in parts.items() if key in _STAGED}
    own = Spec.of({**run, "backend": job.get("backend", {})})
    return LaunchInputs(spec=own, fingerprint="", **digests)


def without_staged(spec: Spec) -> Spec:
    """The spec of a job without what the run that it launches takes along, and without the tasks
    that its backend makes of that: they name a folder of the user who plans, and a mark of the
    lineage. A job that launches no run has its tasks from the file."""
    job = spec.fields
    derived = {STAGED, _TASKS} if RUN in job else {STAGED}
    return Spec.of({key: item for key, item in job.items() if key not in derived})


def mark_of(lineage: str, job: Address, spec: Spec) -> str:
    """What tells one version of what a job launches from all others: the same run with the same
    code, in the same environment, has the same."""
    inputs = [spec.fields.get(key) for key in (RUN, STAGED, "backend")]
    return token(lineage, job, 0, digest(canonical(inputs)))
