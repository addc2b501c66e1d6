"""The local backend as the engine knows it."""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.backend_kinds import BackendKind, Capabilities
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.state import Attempt

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.base import Backend, Survey
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.model.job import JobRules
    from sgpu_decl.model.jsonable import Json

_NAME = "local"
_IMPLIED: "Mapping[str, Json]" = {
    "max_concurrent_runs": 1,
    "notify": True,
    "on_overlap": "skip",
}
_STARTS = ("schedule", "trigger")
UNKEPT = (*_STARTS, "health", "notify", "on_finish", "run_as", "permissions", "budget")
"""Fields of a job that have no effect here, and are no error."""
_LACKS = ("timezone", "paused", "notebook")
_LACKS_IN_TASKS = ("notebook", "task", "base", "dependencies")
_PARTS = {"kind": "kind", "python.path": "python", "python.args": "args", "run.name": "run"}
"""Parts of a task, and the fields of the YAML that they are."""


def _open(context: "BackendContext") -> "Backend":
    from sgpu_decl.backends.local.local_backend import LocalBackend

    return LocalBackend(context)


def _survey(context: "BackendContext") -> "Survey":
    from sgpu_decl.backends.local.local_survey import LocalSurvey

    return LocalSurvey(os.environ, context.pythons)


def _orphans(state_dir: Path) -> "tuple[Attempt, ...]":
    """The host knows of them. How they were launched is not known any more."""
    from sgpu_decl.agent.attempt.host_record import orphans

    records = orphans(os.fspath(state_dir / "runs"))
    if not records:
        return ()
    from datetime import datetime

    from sgpu_decl.model.jsonable import NO_FIELDS

    return tuple(
        Attempt(
            ref=AttemptRef(Address.parse(record["address"]), record["attempt"]),
            token=record["token"],
            backend=_NAME,
            state=AttemptState.STOPPING,
            inputs=LaunchInputs(spec=NO_FIELDS, fingerprint=""),
            created_at=datetime.fromisoformat(record["launched_at"]),
        )
        for record in records
    )


def _options() -> "type[BackendOptions]":
    from sgpu_decl.backends.local.options import LocalOptions

    return LocalOptions


@cache
def _jobs() -> "JobRules":
    from sgpu_decl.model.job import TASKS, JobField, JobRules

    def field(path: str, settings: "Mapping[str, Json]") -> JobField:
        value, (_, _, rest) = settings[path], path.partition(".")
        key, _, part = rest.partition(".")
        if path.startswith(f"{TASKS}.") and part in _PARTS:
            return JobField(f"{TASKS}.{key}.{_PARTS[part]}", value, implied=part == "kind")
        return JobField(path, value, implied=_IMPLIED.get(path) == value)

    return JobRules(
        task=TASKS,
        where="on this machine",
        link=lambda workspace, job_id: "",  # noqa: ARG005  they have no page
        field=field,
        lacks=(*UNKEPT, *_LACKS, *(f"{TASKS}.*.{name}" for name in _LACKS_IN_TASKS)),
    )


def _check_reference(reference: str) -> None:
    from sgpu_decl.backends.local.launch_site import check_site

    check_site(reference)


KIND = BackendKind(
    name=_NAME,
    options=_options,
    capabilities=Capabilities(fields=frozenset({"after", "on_finish", "ray", "resume"})),
    open=_open,
    survey=_survey,
    jobs=_jobs,
    orphans=_orphans,
    check_reference=_check_reference,
)
