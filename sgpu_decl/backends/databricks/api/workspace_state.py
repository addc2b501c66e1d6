"""A state in a workspace: the files of a folder, or the login to a PostgreSQL server.

The password of a server of the platform is a token of the workspace, which lives an hour and is
looked at when somebody logs in (evidence: A19).
"""

import shlex
from collections.abc import Mapping

from sgpu_decl.backends.databricks.api.account import Account
from sgpu_decl.backends.databricks.api.connection import FIRST_ANSWER, Connection, TimeLimits
from sgpu_decl.backends.databricks.api.workspace_files import VOLUMES, VolumePlace, WorkspacePlace
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.storing.state_root import StateRoot
from sgpu_decl.storing.stores import SharedPlace

_IN_FOLDER = 100  # entries
_LIMITS = TimeLimits(silence=20.0, retry_seconds=1)
"""Whoever holds a lock that ends in a minute must not wait long for one answer: the state has its
own way of trying again."""
_LOGIN_LIMITS = TimeLimits(silence=20.0, retry_seconds=1)


def open_state_root(place: SharedPlace) -> StateRoot:
    """The folder of a place, below `/Workspace` or on a volume, without a request."""
    account = Account(place.profile, place.host, block="state")
    connection = Connection(account, _LIMITS, patience=FIRST_ANSWER)
    folder = _Folder(connection, place)
    kind = VolumePlace if folder.on_volume else WorkspacePlace
    folder.files = kind(connection, folder.advice)
    return StateRoot(
        place=folder.files,
        name=place.address,
        path=place.address,
        in_folder=_IN_FOLDER,
        require=folder.require,
        close=connection.close,
    )


class _Folder:
    """It has to be made by hand: with the login of another workspace, a new state would begin
    there."""

    files: VolumePlace | WorkspacePlace

    def __init__(self, connection: Connection, place: SharedPlace) -> None:
        self._connection = connection
        self._place = place
        self._found = False
        self.on_volume = _on_volume(place)

    def require(self) -> None:
        """Raises SgpuError where the folder is not there."""
        path = self._place.address
        if not self._found:
            found = self.files.stat(path)
            self._found = found is not None and found.folder
        if not self._found:
            raise SgpuError(
                f"`{path}` holds no shared state: `{self._connection.host}` has no such folder, or "
                f"`{self._connection.user}` may not see it",
                hint="is this the right workspace, and the right user? For a first state: "
                f"`{making(self._place)}`",
                code="state_unreachable",
            )

    def advice(self) -> Mapping[str, str]:
        """The next steps by the codes of errors."""
        folder, user = self._place.address, self._connection.user
        # https://docs.databricks.com/aws/en/security/auth/access-control/#folder-acls
        refused = (
            f"who owns the volume of `{folder}` gives `{user}` the privilege READ VOLUME, and "
            "WRITE VOLUME to apply"
            if self.on_volume
            else f"who manages `{folder}` gives `{user}` Can View, and Can Manage to apply: Share "
            "(Permissions) in the menu of the folder"
        )
        other = "name another folder with `state.path`, one of a volume for instance"
        codes = ("no_room", "limit_reached", "staging_taken", "too_large_to_fetch")
        return {"permission_denied": refused, **dict.fromkeys(codes, other)}


def making(place: SharedPlace) -> str:
    """The shell command with which a person makes the folder of a state."""
    words = ["databricks", "workspace", "mkdirs", place.address]
    if _on_volume(place):
        words = ["databricks", "fs", "mkdirs", f"dbfs:{place.address}"]
    if place.profile is not None:
        words += ["--profile", place.profile]
    return shlex.join(words)


def _on_volume(place: SharedPlace) -> bool:
    return f"{place.address}/".startswith(VOLUMES)


def database_token() -> str:
    """A token of the login that the SDK finds.

    Raises:
        BackendError: there is none, or the login is by a token that is no OAuth token.
    """
    connection = Connection(Account(None, None, block="state"), _LOGIN_LIMITS)
    config = connection.client.config
    connection.close()
    try:
        return config.oauth_token().access_token
    except ValueError as error:
        raise BackendError(
            f"the login to `{connection.host}` is of the kind `{config.auth_type}`, which has no "
            "OAuth token",
            hint="log in with `databricks auth login`, or as a service principal "
            "(DATABRICKS_CLIENT_ID and DATABRICKS_CLIENT_SECRET)",
        ) from error
