"""Proposals as files of one folder, `<id>.json.gz` each, in every store that has files."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Protocol

from sgpu_decl.errors import SgpuError
from sgpu_decl.storing.proposals import KEPT, StoredProposal

__all__ = ["FileProposals", "ProposalFiles"]

_FILE = re.compile(r"([0-9a-f]{32})\.json\.gz")


class ProposalFiles(Protocol):
    """The files of the folder. Times are those that the store gives to files.

    Every call may raise what those of a `ProposalStore` do.
    """

    def add(self, name: str, content: bytes) -> None:
        """Add a file, whole. Once it returns, the file survives a power cut."""

    def times(self) -> Mapping[str, datetime]:
        """The names of all files, and when each was written. The newest may be missing."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where it is not there."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; harmless where they are not there.

        Raises:
            SgpuError: this user may not delete one of them.
        """

    def now(self) -> datetime:
        """The time of the store."""


class FileProposals:
    """`ProposalStore` says what each call promises."""

    def __init__(self, files: ProposalFiles) -> None:
        self._files = files

    def propose(self, id: str, content: bytes) -> None:  # noqa: A002
        self._files.add(f"{id}.json.gz", content)
        times = self._times()
        newest = max(times.values(), default=None)
        if newest is not None:  # the time of the store, more or less
            with suppress(SgpuError):  # who plans may have no right to delete
                self._files.delete(_older(times, newest - KEPT))

    def proposals(self) -> Iterator[StoredProposal]:
        found = sorted(((at, name) for name, at in self._times().items()), reverse=True)
        oldest = self._files.now() - KEPT if found else None
        for at, name in found:
            if oldest is None or at < oldest:
                return
            content = self._files.read(name)
            if content is not None:
                yield StoredProposal(id=name.partition(".")[0], content=content, at=at)

    def drop_expired(self) -> int:
        times = self._times()
        expired = _older(times, self._files.now() - KEPT) if times else []
        self._files.delete(expired)
        return len(expired)

    def close(self) -> None:
        """There is no connection that stays open."""

    def _times(self) -> dict[str, datetime]:
        times = self._files.times().items()
        return {name: at for name, at in times if _FILE.fullmatch(name)}


def _older(times: Mapping[str, datetime], oldest: datetime) -> list[str]:
    return [name for name, at in times.items() if at < oldest]
