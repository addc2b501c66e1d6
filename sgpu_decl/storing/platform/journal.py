"""Entries as files of a platform.

    <path>/<project>/<target>/entries/000000000/000000000001.json
    <path>/<project>/<target>/checkpoints/000000000256.db.gz

A folder has a hundred entries, so that its list is short. A folder of a Databricks workspace could
not have them all: it takes 10,000 objects (its error is MAX_CHILD_NODE_SIZE_EXCEEDED).

A file is created only where its name is free, and read back. Times are those that the platform
gives to files.
"""

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime

from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.storing.journal.entry import digest
from sgpu_decl.storing.journal.port import JournalGap, Stored, StoreDown
from sgpu_decl.storing.platform.place import PlatformPlace

__all__ = ["PlatformJournal"]

_IN_FOLDER = 100  # entries
_FEW = 2  # entries that are asked for by their names alone
_AT_ONCE = 5  # requests
_ENTRY = re.compile(r"([0-9]{12})\.json")
_CHECKPOINT = re.compile(r"([0-9]{12})\.db\.gz")


class PlatformJournal:
    """The entries of one project and target."""

    def __init__(self, place: PlatformPlace, *, project: str, target: str) -> None:
        self._place = place
        self._files = place.files
        self._project = project
        home = f"{place.path}/{project}/{target}"
        self._home = home
        self._checkpoints = f"{home}/checkpoints"

    @property
    def name(self) -> str:
        return self._place.path

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        content = text.encode("ascii")
        if self._files.most is not None and len(content) > self._files.most:
            raise SgpuError(
                f"an entry of the state would have {len(content):,} bytes, and `{self.name}` gives "
                f"back {self._files.most:,}",
                hint="nothing was recorded; name a folder of a volume with `state.path`",
                code="state_unreachable",
            )
        if number > 1:
            self._require(number - 1, prev)
        return self._create(self._entry(number), content)

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        found: list[Stored] = []
        listed = None  # the folder whose list was read
        with self._place.explained():
            while most is None or len(found) < most:
                first = number + len(found) + 1
                left = None if most is None else most - len(found)
                batch: list[Stored] = []
                if self._folder(first) != listed and (left is None or left > _FEW):
                    listed = self._folder(first)
                    batch = self._listed(first, left)
                batch = batch or self._named(first)  # a list may lack the newest
                if not batch:
                    if left is None:
                        self._refuse_gap(first)
                    break
                found += batch
        if number == 0 and not found:
            self._place.check()
        return found

    def checkpoint(self) -> tuple[int, bytes] | None:
        with self._place.explained():
            newest = max(self._numbers(self._checkpoints, _CHECKPOINT), default=None)
            if newest is None:
                return None
            data = self._files.read(f"{self._checkpoints}/{newest:012}.db.gz")
            return None if data is None else (newest, data)

    def put_checkpoint(self, number: int, data: bytes) -> None:
        """One that could not be read again is left out."""
        if self._files.most is None or len(data) <= self._files.most:
            self._place.create(f"{self._checkpoints}/{number:012}.db.gz", data)

    def now(self) -> datetime:
        """Asked with a new file."""
        probe = f"{self._home}/now-{os.urandom(6).hex()}"
        try:
            at = self._create(probe, b"\n")
        finally:
            with suppress(BackendError):
                self._files.delete(probe)
        if at is None:
            raise StoreDown(f"`{self.name}` does not say its time", hint="try again")
        return at

    def targets(self) -> tuple[str, ...]:
        with self._place.explained():
            names = sorted(self._files.folders(f"{self.name}/{self._project}"))
            first = (self.of_target(name)._entry(1) for name in names)
            there = [self._files.written_at(path) is not None for path in first]
        return tuple(name for name, is_one in zip(names, there, strict=True) if is_one)

    def of_target(self, target: str) -> "PlatformJournal":
        return PlatformJournal(self._place, project=self._project, target=target)

    def close(self) -> None:
        """There is no connection that stays open."""

    def _folder(self, number: int) -> str:
        return f"{self._home}/entries/{number // _IN_FOLDER:09}"

    def _entry(self, number: int) -> str:
        return f"{self._folder(number)}/{number:012}.json"

    def _numbers(self, folder: str, pattern: "re.Pattern[str]") -> dict[int, datetime]:
        names = self._files.files(folder).items()
        return {int(found[1]): at for name, at in names if (found := pattern.fullmatch(name))}

    def _listed(self, first: int, most: int | None) -> list[Stored]:
        """The entries from `first` on, as far as their folder lists them. The last ones may be
        listed before they can be read.

        Raises:
            JournalGap: one is missing before another one.
        """
        times = self._numbers(self._folder(first), _ENTRY)
        last = max(times, default=0)
        if most is not None:
            last = min(last, first + most - 1)
        wanted = range(first, last + 1)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            read = list(threads.map(lambda item: self._read(item, times.get(item)), wanted))
        found = [item for item in read if item is not None]
        for expected, item in enumerate(found, start=first):
            if item.number != expected:
                raise JournalGap(f"entry {expected} is missing")
        return found

    def _named(self, number: int) -> list[Stored]:
        found = self._read(number, None)
        return [] if found is None else [found]

    def _read(self, number: int, at: datetime | None) -> Stored | None:
        path = self._entry(number)
        content = self._files.read(path)
        if content is None:
            return None
        at = at or self._files.written_at(path)
        if at is None:
            return None
        return Stored(number=number, text=content.decode("ascii", "backslashreplace"), at=at)

    def _refuse_gap(self, number: int) -> None:
        """Entries of the next folder would stand behind one that is missing.

        Raises:
            JournalGap: there are some.
        """
        following = (number // _IN_FOLDER + 1) * _IN_FOLDER
        if self._files.written_at(self._entry(following)) is not None:
            raise JournalGap(f"entry {number} is missing")

    def _require(self, number: int, prev: str | None) -> None:
        """Entries that are missing now are lost: somebody deleted them, for instance."""
        with self._place.explained():
            found = self._files.read(self._entry(number))
            text = None if found is None else found.decode("ascii", "backslashreplace")
            if text is not None and prev in (None, digest(text)):
                return
            if self._files.written_at(self._entry(number + 1)) is None:
                raise JournalGap(f"entry {number} is missing, or is another one")

    def _create(self, path: str, content: bytes) -> datetime | None:
        """Add a file; None if one of that name is there. It is read back: should two writers be
        told that theirs is there, one of them is right."""
        if not self._place.create(path, content):
            return None
        with self._place.explained():
            at, kept = self._files.written_at(path), self._files.read(path)
        if at is None or kept is None:
            raise StoreDown(
                f"`{self.name}` does not show `{path}`, which was just added", hint="try again"
            )
        return at if kept == content else None
