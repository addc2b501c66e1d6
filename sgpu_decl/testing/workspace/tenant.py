"""Whose workspace it is: one tenant per bearer token, or one that several users share; isolated
from the others, durable on disk."""

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

from sgpu_decl.testing.workspace.tables import Database, Table

__all__ = ["Tenant", "Tenants", "TokenState", "User"]


class TokenState(StrEnum):
    """What the platform thinks of a token."""

    ACTIVE = "active"
    EXPIRED = "expired"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who a token belongs to. Users that name the same `workspace` share a tenant; else each has
    one of its own."""

    name: str
    state: TokenState = TokenState.ACTIVE
    workspace: str | None = None


class Tenant:
    """A workspace, as one of its users. Under `folder` lie the trees that the APIs serve, as real
    files: `Workspace`, `Volumes`, `dbfs`. Tenants of other users of the workspace have the same
    `database`."""

    def __init__(
        self, key: str, folder: Path, user_name: str, database: Database | None = None
    ) -> None:
        self.key = key
        self.folder = folder
        self.user_name = user_name
        self._database = database or Database(folder / "state.sqlite")

    @property
    def home(self) -> str:
        """The user's folder, as the workspace names it."""
        return f"/Users/{self.user_name}"

    def seen_by(self, user_name: str) -> "Tenant":
        """The same workspace, as another user."""
        return Tenant(self.key, self.folder, user_name, self._database)

    @property
    def lock(self) -> threading.RLock:
        """Held by whoever changes state that others read in several steps."""
        return self._database.lock

    def table(self, room: str) -> Table:
        """A durable table; the modules of the API name theirs after themselves."""
        return self._database.table(room)

    def next_id(self) -> int:
        """A new id, larger than all before."""
        return self._database.next_id()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Holds the lock; what is written to tables inside is written whole, or not at all."""
        with self._database.transaction():
            yield

    def tree(self, name: str) -> Path:
        """The folder of one of the served trees."""
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def snapshot(self, folder: Path) -> "Tenant":
        """What it holds now, in a new folder. Files are linked: every writer replaces them."""
        with self.lock:
            folder.mkdir(parents=True)
            self._database.copy_to(folder / "state.sqlite")
            for name in TREES:
                if (self.folder / name).is_dir():
                    shutil.copytree(
                        self.folder / name, folder / name, copy_function=_link, symlinks=True
                    )
        return Tenant(self.key, folder, self.user_name)

    def rest(self) -> None:
        """Close its files until somebody asks for them."""
        self._database.rest()

    def close(self) -> None:
        """Close its files for good."""
        self._database.close()


def _link(source: str, target: str) -> None:
    with suppress(FileNotFoundError):  # what runs on a node may delete its files meanwhile
        os.link(source, target)


TREES = ("Workspace", "Volumes", "dbfs")
_AWAKE = 16  # tenants whose files stay open, three of each


class Tenants:
    """All tenants of a server, below one folder; opened when they are asked for."""

    def __init__(self, folder: Path, users: Mapping[str, User]) -> None:
        self._folder = folder
        self._users = users
        self._open: dict[str, Tenant] = {}
        self._lock = threading.Lock()

    def of_token(self, token: str) -> Tenant:
        """The tenant of a token that was accepted; its first use makes it one that is known."""
        user = self._users.get(token)
        if user is not None and user.workspace is not None:
            return self._opened(_key(f"workspace {user.workspace}"), "").seen_by(user.name)
        key = _key(token)
        return self._opened(key, user.name if user else f"user-{key[:8]}@example.com")

    def knows(self, token: str) -> bool:
        """Whether a token was admitted, now or by a former server on the same folder."""
        key = _key(token)
        with self._lock:
            known = key in self._open
        return known or (self._folder / key / "tenant.json").is_file()

    def by_key(self, key: str) -> Tenant | None:
        """The tenant with that key, if there is one."""
        with self._lock:
            known = self._open.get(key)
        if known is not None:
            return known
        return self._opened(key, "") if (self._folder / key / "tenant.json").is_file() else None

    def all(self) -> list[Tenant]:
        """Every tenant there is on disk."""
        keys = sorted(path.parent.name for path in self._folder.glob("*/tenant.json"))
        return [self._opened(key, "") for key in keys]

    def close(self) -> None:
        """Close all that are open."""
        with self._lock:
            for tenant in self._open.values():
                tenant.close()
            self._open.clear()

    def _opened(self, key: str, user_name: str) -> Tenant:
        with self._lock:
            known = self._open.pop(key, None)
            if known is None:
                folder = self._folder / key
                known = Tenant(key, folder, _remembered(folder, user_name))
                for resting in [*self._open.values()][:-_AWAKE]:
                    resting.rest()
            self._open[key] = known  # the last one is who came last
            return known


def _key(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _remembered(folder: Path, user_name: str) -> str:
    note = folder / "tenant.json"
    if note.is_file():
        return str(json.loads(note.read_text())["user_name"])
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{uuid4().hex}"
    part.write_text(json.dumps({"user_name": user_name}))
    part.replace(note)
    return user_name
