"""One workspace as runs use it: its connection, its files, and the staging folder in it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property

from sgpu_decl.backends.databricks.account import Account
from sgpu_decl.backends.databricks.connecting import Connection
from sgpu_decl.backends.databricks.files import RemoteFiles, files_at
from sgpu_decl.backends.databricks.following import Watched
from sgpu_decl.backends.databricks.places import Staging, home_of
from sgpu_decl.config.backend import Backend as BackendBlock

__all__ = ["Workspace", "Workspaces"]


class Workspace:
    """Made without asking anybody. `staging` is the folder that the YAML names, or `None`."""

    def __init__(self, account: Account, connection: Connection, staging: str | None) -> None:
        self.account = account
        self.connection = connection
        self.staging = staging
        self._done: dict[str, Future[None]] = {}
        self._lock = threading.Lock()

    @cached_property
    def places(self) -> Staging:
        """Where things lie."""
        return Staging(self.staging or home_of(self.connection.user))

    @cached_property
    def files(self) -> RemoteFiles:
        """Its files, of the kind that the staging folder is."""
        return files_at(self.connection, self.places.root)

    @cached_property
    def watched(self) -> Watched:
        """Its runs, for whoever watches some."""
        return Watched(self.connection)

    def forget(self) -> None:
        """What was found there may be gone: look again before it is counted on."""
        with self._lock:
            self._done.clear()

    def once(self, what: str, do: Callable[[], None]) -> None:
        """Do something that all launches of this process share, the first time it is asked for;
        others wait for it. What fails is done again."""
        with self._lock:
            known = self._done.get(what)
            mine = known is None
            future = self._done.setdefault(what, Future())
        if not mine:
            future.result()
            return
        try:
            do()
        except BaseException as error:
            with self._lock:
                self._done.pop(what, None)
            future.set_exception(error)
            raise
        future.set_result(None)


class Workspaces:
    """Those that the runs of a project use, each connected to once."""

    def __init__(self) -> None:
        self._connections: dict[Account, Connection] = {}
        self._known: dict[tuple[Account, str | None], Workspace] = {}
        self._lock = threading.Lock()

    def of(self, block: BackendBlock) -> Workspace:
        """The workspace that the `backend` of a run means."""
        return self.at(Account(block.profile, block.host), block.staging)

    def at(self, account: Account, staging: str | None) -> Workspace:
        """The workspace of an account, with a staging folder in it."""
        with self._lock:
            connection = self._connections.setdefault(account, Connection(account))
            key = (account, staging)
            return self._known.setdefault(key, Workspace(account, connection, staging))
