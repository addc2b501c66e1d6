"""Proposals as files of a platform.

    <path>/<project>/<target>/proposals/<id>.json.gz

Times are those that the platform gives to files.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from sgpu_decl.errors import BackendError
from sgpu_decl.storing.platform.platform_place import PlatformPlace
from sgpu_decl.storing.proposals import KEPT, StoredProposal

__all__ = ["PlatformProposals"]

_FILE = re.compile(r"([0-9a-f]{32})\.json\.gz")


class PlatformProposals:
    """Those of one project and target."""

    def __init__(self, place: PlatformPlace, *, project: str, target: str) -> None:
        self._place = place
        self._files = place.files
        self._folder = f"{place.path}/{project}/{target}/proposals"

    def propose(self, id: str, content: bytes) -> None:  # noqa: A002
        self._place.create(f"{self._folder}/{id}.json.gz", content)
        with self._place.explained():
            for path in self._expired():
                with suppress(BackendError):  # another one did, or its owner alone may
                    self._files.delete(path)

    def proposals(self) -> Iterator[StoredProposal]:
        with self._place.explained():
            found = sorted(self._names(), reverse=True)
        for at, name in found:
            if self._is_expired(at):
                return
            with self._place.explained():
                content = self._files.read(f"{self._folder}/{name}")
            if content is not None:
                yield StoredProposal(id=name.partition(".")[0], content=content, at=at)

    def drop_expired(self) -> int:
        with self._place.explained():
            expired = self._expired()
            for path in expired:
                self._files.delete(path)
            return len(expired)

    def close(self) -> None:
        """There is no connection that stays open."""

    def _names(self) -> list[tuple[datetime, str]]:
        names = self._files.files(self._folder).items()
        return [(at, name) for name, at in names if _FILE.fullmatch(name)]

    def _expired(self) -> list[str]:
        return [f"{self._folder}/{name}" for at, name in self._names() if self._is_expired(at)]

    def _is_expired(self, at: datetime) -> bool:
        return at < self._files.now() - KEPT
