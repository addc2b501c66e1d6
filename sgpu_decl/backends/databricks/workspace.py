"""One workspace as runs use it: its connection, its files, and the staging folder in it."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sgpu_decl.backends.databricks.api.account import Account
from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.api.workspace_files import (
    VOLUMES,
    VolumePlace,
    WorkspacePlace,
    home_of,
)
from sgpu_decl.backends.databricks.launching.experiment import experiment_of, experiments_home
from sgpu_decl.backends.databricks.launching.submit import StagedLaunch
from sgpu_decl.backends.databricks.options import DatabricksOptions
from sgpu_decl.backends.databricks.planning.catalog import make_folder, policy_of
from sgpu_decl.backends.databricks.watching.run_cache import RunCache
from sgpu_decl.backends.launch_request import LaunchRequest, foreign_config
from sgpu_decl.backends.remote.launching.launch_hosts import not_named
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.config.backend import BackendOptions
from sgpu_decl.config.run import RunConfig
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A workspace by its URL and its id, which old ones do not say, and a user of it."""

    host: str
    workspace: str | None
    user: str

    @property
    def facts(self) -> dict[str, Json]:
        """What a `RemoteReference` says of it."""
        return {"host": self.host, "workspace": self.workspace, "user": self.user}

    def is_workspace_of(self, facts: Mapping[str, Any]) -> bool:
        """Whether it is the workspace that a `RemoteReference` names. One workspace may have
        several URLs, and one URL may lead to another workspace another time."""
        if self.workspace is not None and facts["workspace"] is not None:
            return bool(self.workspace == facts["workspace"])
        return bool(self.host == facts["host"])


class Workspace:
    """Made without a request. `staging` is the folder that the YAML names, or `None`."""

    def __init__(self, account: Account, connection: Connection, staging: str | None) -> None:
        self.account = account
        self.connection = connection
        self.staging = staging

    @property
    def key(self) -> dict[str, Json]:
        """What names this workspace and its staging folder; see `Workspaces.with_key`."""
        return {
            "profile": self.account.profile,
            "host": self.account.host,
            "staging": self.staging,
        }

    @cached_property
    def area(self) -> StagingArea:
        """Its staging folder. Where that is one of a volume, commands lie below `/Workspace` all
        the same: the platform documents `command_path` as a path there, and looks for secrets
        beside it (evidence: A3)."""
        root = self.staging or home_of(self.user)
        if root.startswith(VOLUMES):
            layout = RemoteLayout(root, f"{home_of(self.user)}/commands")
            files = VolumePlace(self.connection)
            return StagingArea(layout, files, WorkspacePlace(self.connection), key=self.key)
        return StagingArea(RemoteLayout(root), WorkspacePlace(self.connection), key=self.key)

    @cached_property
    def experiments(self) -> str:
        """The folder of experiments that name none."""
        return experiments_home(self.user, self.area.layout.root)

    @property
    def user(self) -> str:
        """The name of its user, cached as other answers are."""
        return self.identity.user

    @cached_property
    def identity(self) -> Identity:
        """Which workspace answers, and to whom; cached as other answers are."""
        connection = self.connection

        def ask() -> Json:
            return {"user": connection.user, "workspace": connection.workspace_id}

        answer: Any = connection.answers.get("identity", ask)
        return Identity(host=connection.host, **answer)

    def staged_launch(self, request: LaunchRequest, folder: str) -> StagedLaunch:
        """What requests name of a launch, staged in a folder. Raises BackendError if there is no
        such budget policy."""
        budget, code = request.config.budget, request.inputs.code_digest
        return StagedLaunch(
            config=request.config,
            placement=request.inputs.placement,
            folder=self.area.layout.commands(folder),
            experiments=self.experiments,
            code=self.area.layout.code(code) if code is not None else None,
            policy=policy_of(self.connection, budget) if budget is not None else None,
        )

    def make_experiment_folder(self, config: RunConfig, home: str | None = None) -> None:
        """Have the folder in which the platform makes a run's experiment. Users have their own.

        Args:
            home: the folder of experiments that name none; that of this user unless given.

        Raises:
            BackendError: it cannot be made.
        """
        folder = experiment_of(config, home or self.experiments).folder
        if folder != f"/Workspace/Users/{self.user}":
            self.area.run_once(
                f"experiments {folder}", lambda: make_folder(self.connection, folder)
            )

    @cached_property
    def run_cache(self) -> RunCache:
        """Its runs."""
        return RunCache(self.connection)


class Workspaces:
    """The workspaces that the runs of a project use, with one connection to each."""

    def __init__(self) -> None:
        self._connections: dict[Account, Connection] = {}
        self._known: dict[tuple[Account, str | None], Workspace] = {}
        self._lock = threading.Lock()
        self._named: set[str] = set()
        self._hosts_in_files: Callable[[str], Iterable[str | None] | None] = lambda _: None

    def guard(self, hosts: Callable[[str], Iterable[str | None] | None]) -> None:
        """Send credentials to a host that a record names only if this user names it too.

        Args:
            hosts: what the files of the project have as `backend.host`, by the file that declares
                a run or a job. None where no other machine has the state that records are from.
        """
        self._hosts_in_files = hosts

    def of(self, block: BackendOptions) -> Workspace:
        """The workspace that the `backend` of a run means which this user plans or launches."""
        workspace = self.meant(block)
        if workspace.account.host is not None:
            self._named.add(workspace.account.host)
        return workspace

    def recorded(self, block: BackendOptions, owner: str, *, record: str = "run") -> Workspace:
        """The same for a block that a state has. `owner` is the file that declares its run.

        Raises:
            BackendError: the credentials of this user may not be sent there.
        """
        workspace = self.meant(block)
        host = workspace.account.host
        if host is None or host in self._named:
            return workspace
        try:
            login = workspace.connection.login
        except BackendError:  # there are no credentials for it, as is said where it is asked
            return workspace
        if login.by_block_alone:
            written = self._hosts_in_files(owner)
            if written is not None and host not in written:
                raise not_named(
                    login.host,
                    record=record,
                    hint="if that is your workspace, name it as `host` in the profile, or in "
                    "DATABRICKS_HOST",
                )
        return workspace

    def meant(self, block: BackendOptions) -> Workspace:
        """The workspace that a block means, whoever wrote that: one that is not asked. Raises
        BackendError if it is the block of another backend."""
        if not isinstance(block, DatabricksOptions):
            raise foreign_config("Databricks")
        return self.at(Account(block.profile, block.host), block.staging)

    def with_key(self, key: Mapping[str, Any]) -> Workspace:
        """The workspace with that key."""
        return self.at(Account(key["profile"], key["host"]), key["staging"])

    def at(self, account: Account, staging: str | None) -> Workspace:
        """The workspace of an account, with a staging folder in it."""
        with self._lock:
            connection = self._connections.setdefault(account, Connection(account))
            key = (account, staging)
            return self._known.setdefault(key, Workspace(account, connection, staging))

    def close(self) -> None:
        """Close the connections. A later request opens them again."""
        with self._lock:
            connections = [*self._connections.values()]
        for connection in connections:
            connection.close()
