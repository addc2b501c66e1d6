"""Whether the staging folder that the YAML names can be written, as far as its permissions say so.
Nothing is written to find out: a plan changes nothing.

The folder itself may not be there yet: then the nearest one above it decides, which the platform's
permissions are inherited from (evidence: D3). Levels are those of the SDK,
`WorkspaceObjectPermissionLevel`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.sdk_errors import without_refusals
from sgpu_decl.backends.databricks.api.workspace_files import VOLUMES
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.jsonable import Json

_WRITES = frozenset({"CAN_EDIT", "CAN_MANAGE"})
_FOLDERS = frozenset({"DIRECTORY", "REPO"})


def check_staging(
    connection: Connection, staging: str | None, places: Mapping[str, Place]
) -> Iterator[Diagnostic]:
    """Findings about a staging folder. That one has none is cached; a user's own folder (`None`) is
    not checked.

    Raises:
        BackendError: the workspace cannot be asked.
    """
    question: Json = ["staging refused", staging]
    if staging is None or connection.answers.cached(question) == "no":
        return
    check = _in_volume if staging.startswith(VOLUMES) else _in_workspace
    with without_refusals():
        finding = check(connection, staging, places.get("backend.staging"))
        if finding is None:
            connection.answers.remember(question, "no")
        else:
            yield finding


def check_artifact_volume(
    connection: Connection, location: str | None, places: Mapping[str, Place]
) -> Iterator[Diagnostic]:
    """Warn if the workspace does not show the volume of `mlflow.artifact_location`.

    Raises:
        BackendError: the workspace cannot be asked.
    """
    if location is None or not location.startswith(VOLUMES):
        return
    with without_refusals():
        place = places.get("mlflow.artifact_location")
        loss = "a new experiment could keep no artifacts"
        finding = _missing_volume(connection, location, "artifact_volume_missing", loss, place)
        if finding is not None:
            yield finding


def _in_volume(connection: Connection, staging: str, place: Place | None) -> Diagnostic | None:
    return _missing_volume(connection, staging, "staging_missing", "`apply` would fail", place)


def _missing_volume(
    connection: Connection, path: str, code: str, loss: str, place: Place | None
) -> Diagnostic | None:
    name = ".".join(path.removeprefix(VOLUMES).split("/")[:3])
    doing = f"looking at the volume `{name}`"
    if connection.find(doing, f"/api/2.1/unity-catalog/volumes/{name}") is not None:
        return None
    return Diagnostic(
        code=code,
        severity=Severity.WARNING,
        summary=f"`{connection.host}` shows no volume `{name}`, and {loss}",
        place=place,
        hint=f"make it with `databricks volumes create {name.replace('.', ' ')} MANAGED`, or "
        "ask who manages it for access",
    )


def _in_workspace(connection: Connection, staging: str, place: Place | None) -> Diagnostic | None:
    path, api = staging, "/api/2.0/workspace/get-status"
    while (status := connection.find(f"looking at `{path}`", api, path=path)) is None:
        path = path.rpartition("/")[0]
        if path.count("/") == 1:
            return None  # the root: nothing says who may make folders there
    kind = str(status.get("object_type"))
    if kind not in _FOLDERS:
        return Diagnostic(
            code="staging_taken",
            summary=f"`{path}` is no folder in `{connection.host}` but a {kind.lower()}, and "
            "launches are staged in a folder",
            place=place,
            hint="name another folder with `backend.staging`",
        )
    answer = connection.ask(
        f"looking who may write to `{path}`",
        f"/api/2.0/permissions/directories/{status['object_id']}",
    )
    if _writers(answer) & _names(connection):
        return None
    return Diagnostic(
        code="staging_unwritable",
        severity=Severity.WARNING,
        summary=f"`{connection.user}` may not write to `{path}`, by its permissions, and `apply` "
        "would fail",
        place=place,
        hint="name another folder with `backend.staging`, or ask its owner to let you edit it",
    )


def _writers(answer: Mapping[str, Any]) -> set[str]:
    """The names of users, groups and service principals that may write."""
    return {
        str(entry.get("user_name") or entry.get("group_name") or entry["service_principal_name"])
        for entry in answer.get("access_control_list") or ()
        if any(
            item.get("permission_level") in _WRITES for item in entry.get("all_permissions") or ()
        )
    }


def _names(connection: Connection) -> set[str]:
    """The user's name, and the groups that it is in."""
    me = connection.ask("asking who you are", "/api/2.0/preview/scim/v2/Me")
    groups = {str(item.get("display")) for item in me.get("groups") or ()}
    return {connection.user, *groups}
