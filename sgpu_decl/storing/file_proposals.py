"""Proposals as files of a place.

<root>/<project>/<target>/proposals/<id>.json.gz
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from sgpu_decl.errors import SgpuError
from sgpu_decl.storing.proposals import KEPT, StoredProposal
from sgpu_decl.storing.state_root import StateRoot

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
        """There is no connection that stays open."""

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
