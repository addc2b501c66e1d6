"""Whether the staging folder that the YAML names can be written, as far as its permissions say so.
Nothing is written to find out: a plan changes nothing.

The folder itself may not be there yet: then the nearest one above it decides, which the platform's
permissions are inherited from (evidence: D3). Levels are those of the SDK,
`WorkspaceObjectPermissionLevel`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sgpu_decl.backends.databricks.api.answer_cache import AnswerCache
from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.workspace_files import VOLUMES
from sgpu_decl.backends.remote.files import RemoteMissing
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError

__all__ = ["check_staging"]

_WRITES = frozenset({"CAN_EDIT", "CAN_MANAGE"})
_FOLDERS = frozenset({"DIRECTORY", "REPO"})
_ASKED_FIRST = frozenset({"unauthenticated", "host_unreachable"})  # nothing else can be asked then
_HINT = "name another folder with `backend.staging`, or ask its owner to let you edit it"


def check_staging(
    connection: Connection, staging: str | None, places: Mapping[str, Place]
) -> Iterator[Diagnostic]:
    """Say what stands in the way of a staging folder. One that is found in order is remembered; a
    user's own folder is not looked at.

    Raises:
        BackendError: the workspace cannot be asked.
    """
    cache = AnswerCache(connection)
    question = ["staging refused", staging]
    if staging is None or cache.answer([*question]) == "no":
        return
    place = places.get("backend.staging")
    try:
        found = (
            _in_volume(connection, staging, place)
            if staging.startswith(VOLUMES)
            else _in_workspace(connection, staging, place)
        )
    except BackendError as error:
        if error.code in _ASKED_FIRST:
            raise
        return  # whoever may not look may be allowed to write
    if found is None:
        cache.remember([*question], "no")
    else:
        yield found


def _in_volume(connection: Connection, staging: str, place: Place | None) -> Diagnostic | None:
    name = ".".join(staging.removeprefix(VOLUMES).split("/")[:3])
    try:
        connection.ask(f"looking at the volume `{name}`", f"/api/2.1/unity-catalog/volumes/{name}")
    except RemoteMissing:
        return Diagnostic(
            code="staging_missing",
            severity=Severity.WARNING,
            summary=f"`{connection.host}` shows no volume `{name}`, and `apply` would fail",
            place=place,
            hint=f"make it with `databricks volumes create {name.replace('.', ' ')} MANAGED`, or "
            "ask who manages it for access",
        )
    return None


def _in_workspace(connection: Connection, staging: str, place: Place | None) -> Diagnostic | None:
    path, there = _nearest(connection, staging)
    if there is None:
        return None  # the root: who may make folders there, nothing says
    kind = str(there.get("object_type"))
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
        f"/api/2.0/permissions/directories/{there['object_id']}",
    )
    if _writers(answer) & _names(connection):
        return None
    return Diagnostic(
        code="staging_unwritable",
        severity=Severity.WARNING,
        summary=f"`{connection.user}` may not write to `{path}`, by its permissions, and `apply` "
        "would fail",
        place=place,
        hint=_HINT,
    )


def _nearest(connection: Connection, path: str) -> tuple[str, dict[str, Any] | None]:
    """The folder, or the nearest one above it that is there."""
    while path.count("/") > 1:
        try:
            doing = f"looking at `{path}`"
            return path, connection.ask(doing, "/api/2.0/workspace/get-status", path=path)
        except RemoteMissing:
            path = path.rpartition("/")[0]
    return path, None


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
