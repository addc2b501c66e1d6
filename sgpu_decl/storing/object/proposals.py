"""Proposals as objects of a bucket.

<folder>/<project>/<target>/proposals/<id>.json.gz
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from sgpu_decl.storing.object.bucket import Bucket

__all__ = ["ObjectProposalFiles"]


class ObjectProposalFiles:
    """Those of one project and target."""

    def __init__(self, bucket: Bucket, *, project: str, target: str) -> None:
        self._bucket = bucket
        self._clock = f"{project}/{target}/clock"
        self._folder = f"{project}/{target}/proposals"

    def add(self, name: str, content: bytes) -> None:
        self._bucket.create(f"{self._folder}/{name}", content)

    def times(self) -> Mapping[str, datetime]:
        return dict(self._bucket.names(self._folder))

    def read(self, name: str) -> bytes | None:
        return self._bucket.read(f"{self._folder}/{name}")

    def delete(self, names: Iterable[str]) -> None:
        self._bucket.delete(f"{self._folder}/{name}" for name in names)

    def now(self) -> datetime:
        return self._bucket.now(self._clock)
