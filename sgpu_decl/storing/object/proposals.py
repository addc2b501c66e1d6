"""Proposals as objects of a bucket.

    <folder>/<project>/<target>/proposals/<id>.json.gz

Times are those that the store gives to objects.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from sgpu_decl.errors import SgpuError
from sgpu_decl.storing.object.bucket import Bucket
from sgpu_decl.storing.proposals import KEPT, StoredProposal

__all__ = ["ObjectProposals"]

_FILE = re.compile(r"([0-9a-f]{32})\.json\.gz")


class ObjectProposals:
    """Those of one project and target."""

    def __init__(self, bucket: Bucket, *, project: str, target: str) -> None:
        self._bucket = bucket
        self._home = f"{project}/{target}"
        self._folder = f"{self._home}/proposals"

    def propose(self, id: str, content: bytes) -> None:  # noqa: A002
        self._bucket.create(self._path(id), content)
        found = self._found()
        newest = max((at for at, _ in found), default=None)
        if newest is not None:
            with suppress(SgpuError):  # who plans may have no right to delete
                self._bucket.delete(self._path(id_) for at, id_ in found if at < newest - KEPT)

    def proposals(self) -> Iterator[StoredProposal]:
        found = sorted(self._found(), reverse=True)
        oldest = self._oldest() if found else None
        for at, id_ in found:
            if oldest is None or at < oldest:
                return
            content = self._bucket.read(self._path(id_))
            if content is not None:
                yield StoredProposal(id=id_, content=content, at=at)

    def drop_expired(self) -> int:
        found = self._found()
        oldest = self._oldest() if found else None
        expired = [id_ for at, id_ in found if oldest is not None and at < oldest]
        self._bucket.delete(map(self._path, expired))
        return len(expired)

    def close(self) -> None:
        """There is no connection that stays open."""

    def _path(self, id_: str) -> str:
        return f"{self._folder}/{id_}.json.gz"

    def _oldest(self) -> datetime:
        return self._bucket.now(f"{self._home}/clock") - KEPT

    def _found(self) -> list[tuple[datetime, str]]:
        names = self._bucket.names(self._folder)
        return [(at, found[1]) for name, at in names if (found := _FILE.fullmatch(name))]
