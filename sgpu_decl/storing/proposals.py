"""The proposals of a target, kept beside its state. Adding one needs no right to write the state,
so whoever may only plan can do it. Here are also proposals as files of a place."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sgpu_decl.errors import SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.storing.state_root import StateRoot

KEPT = timedelta(days=30)
"""How long a proposal counts, by the clock of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProposal:
    """A proposal as the store keeps it. `at` is the time of the store when it was added."""

    id: str
    content: bytes
    at: datetime


class ProposalStore(Protocol):
    """The proposals of one project and target.

    Every call may raise:
        StoreDown: try again; `propose` may have happened.
        SgpuError: the store refuses; trying again is no use.
    """

    def propose(self, id: str, content: bytes) -> None:  # noqa: A002
        """Add a proposal. Once it returns, the proposal survives a power cut."""

    def proposals(self) -> Iterator[StoredProposal]:
        """Those that are not older than `KEPT`, newest first. Each is read when it is asked for."""

    def drop_expired(self) -> int:
        """Delete those that are older than `KEPT`; returns how many.

        Raises:
            SgpuError: this user may not delete anything.
        """

    def close(self) -> None:
        """Close connections. A later call opens them again."""


_FILE = re.compile(r"([0-9a-f]{32})\.json\.gz")


class FileProposals:
    """`ProposalStore` says what each call promises. `home` is the folder of a project and target;
    times are those that the place gives to files."""

    def __init__(self, root: StateRoot, home: str) -> None:
        self._root = root
        self._folder = f"{home}/proposals"

    def propose(self, id: str, content: bytes) -> None:  # noqa: A002
        self._root.create(f"{self._folder}/{id}.json.gz", content)
        times = self._times()
        newest = max(times.values(), default=None)
        if newest is not None:  # the time of the store, more or less
            with suppress(SgpuError):  # who plans may have no right to delete
                self._delete(_older(times, newest - KEPT))

    def proposals(self) -> Iterator[StoredProposal]:
        found = sorted(((at, name) for name, at in self._times().items()), reverse=True)
        oldest = self._now() - KEPT if found else None
        for at, name in found:
            if oldest is None or at < oldest:
                return
            with self._root.explained():
                content = self._root.read(f"{self._folder}/{name}")
            if content is not None:
                yield StoredProposal(id=name.partition(".")[0], content=content, at=at)

    def drop_expired(self) -> int:
        times = self._times()
        expired = _older(times, self._now() - KEPT) if times else []
        self._delete(expired)
        return len(expired)

    def close(self) -> None:
        self._root.close()

    def _times(self) -> dict[str, datetime]:
        """When each proposal was written. The newest may be missing."""
        with self._root.explained():
            return {
                entry.name: datetime.fromtimestamp(entry.modified, UTC)
                for entry in self._root.place.list(self._folder)
                if _FILE.fullmatch(entry.name)
            }

    def _now(self) -> datetime:
        with self._root.explained():
            return datetime.fromtimestamp(self._root.place.now(), UTC)

    def _delete(self, names: list[str]) -> None:
        with self._root.deleting():
            for name in names:
                self._root.place.delete(f"{self._folder}/{name}")


def _older(times: Mapping[str, datetime], oldest: datetime) -> list[str]:
    return [name for name, at in times.items() if at < oldest]
