"""Proposals as files of a platform.

<path>/<project>/<target>/proposals/<id>.json.gz
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from sgpu_decl.storing.platform.platform_place import PlatformPlace

__all__ = ["PlatformProposalFiles"]


class PlatformProposalFiles:
    """Those of one project and target."""

    def __init__(self, place: PlatformPlace, *, project: str, target: str) -> None:
        self._place = place
        self._folder = f"{place.path}/{project}/{target}/proposals"

    def add(self, name: str, content: bytes) -> None:
        self._place.create(f"{self._folder}/{name}", content)

    def times(self) -> Mapping[str, datetime]:
        with self._place.explained():
            return self._place.files.files(self._folder)

    def read(self, name: str) -> bytes | None:
        with self._place.explained():
            return self._place.files.read(f"{self._folder}/{name}")

    def delete(self, names: Iterable[str]) -> None:
        with self._place.explained():
            for name in names:
                self._place.files.delete(f"{self._folder}/{name}")

    def now(self) -> datetime:
        with self._place.explained():
            return self._place.files.now()
