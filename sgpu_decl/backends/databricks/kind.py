"""The Databricks backend as the engine knows it."""

from typing import TYPE_CHECKING, Any

from sgpu_decl.model.backend_kinds import BackendKind, Capabilities, Joining

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.base import Backend
    from sgpu_decl.backends.bundle_backend import BundleBackend
    from sgpu_decl.backends.job_backend import WrittenJob
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.model.environment import Base
    from sgpu_decl.model.job import JobRules
    from sgpu_decl.storing.state_root import StateRoot
    from sgpu_decl.storing.stores import SharedPlace


def _open(context: "BackendContext") -> "Backend":
    from sgpu_decl.backends.databricks.databricks_backend import open_databricks

    return open_databricks(context)


def _options() -> "type[BackendOptions]":
    from sgpu_decl.backends.databricks.options import DatabricksOptions

    return DatabricksOptions


def _bases() -> "tuple[Base, ...]":
    from sgpu_decl.backends.databricks.bases import all_bases

    return all_bases()


def _may_have_base(name: str) -> bool:
    from sgpu_decl.backends.databricks.bases import base_named

    return base_named(name) is not None


def _jobs() -> "JobRules":
    from sgpu_decl.backends.databricks.jobs.lakeflow_rules import RULES

    return RULES


def _state_root(place: "SharedPlace") -> "StateRoot":
    from sgpu_decl.backends.databricks.api.workspace_state import open_state_root

    return open_state_root(place)


def _database_token() -> str:
    from sgpu_decl.backends.databricks.api.workspace_state import database_token

    return database_token()


def _bundle(context: "BackendContext", folder: "Path") -> "BundleBackend":
    from sgpu_decl.backends.databricks.bundles.bundled_launches import BundledLaunches

    return BundledLaunches(context, folder)


def _written_job(
    settings: "Mapping[str, Any]", name: str, copied: "Mapping[str, str]"
) -> "WrittenJob":
    from sgpu_decl.backends.databricks.jobs.documents import document_of
    from sgpu_decl.backends.databricks.jobs.job_yaml import written_job

    return written_job(document_of(settings), name, copied)


def _check_reference(reference: str) -> None:
    from sgpu_decl.backends.remote.launching.remote_reference import check_reference

    place = {"host": (str,), "workspace": (str, type(None)), "user": (str,)}
    run = {"run_id": (int,), "submitted": (int, float)}
    check_reference(reference, place, run, {"task": (str,), "after": (dict,)})


KIND = BackendKind(
    name="databricks",
    options=_options,
    bases=_bases,
    may_have_base=_may_have_base,
    capabilities=Capabilities(
        remote=True,
        fields=frozenset(
            {
                "after",
                "pool",
                "priority",
                "permissions",
                "budget",
                "image",
                "on_finish",
                "on_finish.failure",
                "on_finish.success",
                "ray",
                "resume",
            }
        ),
        queues=False,
        # As tasks of one run of the platform, which has one list of permissions and one budget. How
        # many tasks a submitted run may have is not documented: `runs/get` shows 100 at once.
        joins=Joining(most=100, same=("permissions", "budget")),
    ),
    open=_open,
    jobs=_jobs,
    checks=True,
    takes_calls=True,
    state_root=_state_root,
    database_token=_database_token,
    check_reference=_check_reference,
    bundle=_bundle,
    written_job=_written_job,
)
