"""Entries as files of a platform.

    <path>/<project>/<target>/entries/000000000/000000000001.json
    <path>/<project>/<target>/checkpoints/000000000256.db.gz

A folder has a hundred entries, so that its list is short. A folder of a Databricks workspace could
not have them all: it takes 10,000 objects (its error is MAX_CHILD_NODE_SIZE_EXCEEDED).

A file is created only where its name is free, and read back. Times are those that the platform
gives to files.

Entries before the oldest checkpoint may have been deleted. That checkpoint is there before they
are, so none of their numbers is given again.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime

from sgpu_decl.atomic_files import LEFT_AFTER
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.storing.journal.entry import digest
from sgpu_decl.storing.journal.numbered_files import (
    checkpoint_name,
    checkpoint_number,
    entry_name,
    entry_number,
    entry_text,
    found_checkpoint,
)
from sgpu_decl.storing.journal.port import Compacted, JournalGap, Stored, StoreDown
from sgpu_decl.storing.platform.platform_place import PlatformPlace

__all__ = ["PlatformJournal"]

_IN_FOLDER = 100  # entries
_FEW = 2  # entries that are asked for by their names alone
_AT_ONCE = 5  # requests
_HUNDRED = re.compile(r"[0-9]{9}")
_PROBE = re.compile(r"now-[0-9a-f]{12}")


class PlatformJournal:
    """The entries of one project and target."""

    def __init__(self, place: PlatformPlace, *, project: str, target: str) -> None:
        self._place = place
        self._files = place.files
        self._project = project
        self._home = f"{place.path}/{project}/{target}"
        self._entries = f"{self._home}/entries"
        self._checkpoints = f"{self._home}/checkpoints"

    @property
    def name(self) -> str:
        return self._place.path

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        content = text.encode("ascii")
        self._refuse_large("an entry", content)
        if number > 1 and not self._is_next(number, prev):
            return None
        path = self._entry(number)
        at = self._create(path, content)
        if at is None or number == 1:  # the first one is never deleted
            return at
        with self._place.explained():
            if number > self._dropped():
                return at
            # The number was taken meanwhile, and its entry deleted.
            self._files.delete(path)
        return None

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        found: list[Stored] = []
        listed = None  # the folder whose list was read
        few = most is not None and most <= _FEW
        with self._place.explained():
            while most is None or len(found) < most:
                first = number + len(found) + 1
                left = None if most is None else most - len(found)
                batch: list[Stored] = []
                if self._folder(first) != listed and not few:
                    listed = self._folder(first)
                    batch = self._listed(first, left)
                batch = batch or self._named(first)  # a list may lack the newest
                if not batch:
                    # Is an entry the newest one? That is asked often, by its name and the next one.
                    if not few or not found or first == 2:
                        self._refuse_missing(first, listed if most is None else None)
                    break
                found += batch
        if number == 0 and not found:
            self._place.check()
        return found

    def checkpoint(self) -> tuple[int, bytes] | None:
        return self._checkpoint(max)

    def oldest_checkpoint(self) -> tuple[int, bytes] | None:
        return self._checkpoint(min)

    def put_checkpoint(self, number: int, data: bytes) -> bool:
        self._refuse_large("a checkpoint", data)
        return self._place.create(self._checkpoint_file(number), data)

    def drop_before(self, number: int) -> None:
        with self._place.explained():
            checkpoints = sorted(self._numbers(self._checkpoints, checkpoint_number))
            if number not in checkpoints:
                raise StoreDown(
                    f"`{self.name}` does not list `{self._checkpoint_file(number)}`",
                    hint="nothing was deleted; try again",
                )
            self._delete(map(self._checkpoint_file, checkpoints[: checkpoints.index(number)]))
            whole = []
            for folder in self._entry_folders():
                first = folder * _IN_FOLDER
                if folder > 0 and first + _IN_FOLDER <= number:
                    whole.append(self._folder(first))
                elif first < number:  # in their order: see `_missing`
                    entries = sorted(self._numbers(self._folder(first), entry_number))
                    self._delete(self._entry(item) for item in entries if 1 < item < number)
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                list(threads.map(self._files.delete, whole))
            left, before = self._files.files(self._home).items(), self._files.now() - LEFT_AFTER
            old = (name for name, at in left if _PROBE.fullmatch(name) and at < before)
            self._delete(f"{self._home}/{name}" for name in old)

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
        return f"{self._entries}/{number // _IN_FOLDER:09}"

    def _entry(self, number: int) -> str:
        return f"{self._folder(number)}/{entry_name(number)}"

    def _checkpoint_file(self, number: int) -> str:
        return f"{self._checkpoints}/{checkpoint_name(number)}"

    def _entry_folders(self) -> list[int]:
        names = self._files.folders(self._entries)
        return sorted(int(name) for name in names if _HUNDRED.fullmatch(name))

    def _numbers(self, folder: str, number_of: Callable[[str], int | None]) -> dict[int, datetime]:
        names = self._files.files(folder).items()
        return {number: at for name, at in names if (number := number_of(name)) is not None}

    def _checkpoint(self, choose: Callable[[Iterable[int]], int]) -> tuple[int, bytes] | None:
        with self._place.explained():
            return found_checkpoint(
                self._numbers(self._checkpoints, checkpoint_number),
                choose,
                lambda number: self._files.read(self._checkpoint_file(number)),
            )

    def _dropped(self) -> int:
        """The number up to which entries may have been deleted."""
        return min(self._numbers(self._checkpoints, checkpoint_number), default=1) - 1

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._files.delete(path)

    def _listed(self, first: int, most: int | None) -> list[Stored]:
        """The entries from `first` on, as far as their folder lists them. The last ones may be
        listed before they can be read.

        Raises:
            JournalGap: one is missing before another one.
        """
        times = self._numbers(self._folder(first), entry_number)
        last = max(times, default=0)
        if last > first and first not in times and self._read(first, None) is None:
            raise self._missing(first)
        if most is not None:
            last = min(last, first + most - 1)
        wanted = range(first, last + 1)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            read = list(threads.map(lambda item: self._read(item, times.get(item)), wanted))
        found = [item for item in read if item is not None]
        for expected, item in enumerate(found, start=first):
            if item.number != expected:
                raise self._missing(expected)
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
        return Stored(number=number, text=entry_text(content), at=at)

    def _refuse_missing(self, number: int, listed: str | None) -> None:
        """Entries that are there would stand behind one that is missing. `listed` is a folder whose
        entries have all been looked at.

        Raises:
            JournalGap: there are some.
        """
        for folder in self._entry_folders():
            path = self._folder(folder * _IN_FOLDER)
            if folder < number // _IN_FOLDER or path == listed:
                continue
            if max(self._numbers(path, entry_number), default=0) > number:
                raise self._missing(number)

    def _missing(self, number: int) -> JournalGap:
        """The error for an entry that is not there."""
        dropped = self._dropped()
        # Entry 2 is the first one that is deleted.
        if 1 < number <= dropped and self._files.written_at(self._entry(2)) is None:
            return Compacted(self.name, dropped + 1)
        return JournalGap(f"entry {number} is missing")

    def _is_next(self, number: int, prev: str | None) -> bool:
        """Whether an entry may be added; false if its number was taken before. Entries that are
        missing now are lost: somebody deleted them, for instance."""
        with self._place.explained():
            found = self._files.read(self._entry(number - 1))
            if found is not None and prev in (None, digest(entry_text(found))):
                # The number after the first one may be free again.
                return number > 2 or number > self._dropped()
            if self._files.written_at(self._entry(number)) is not None:
                return False
            if number <= self._dropped():
                return False
            raise JournalGap(f"entry {number - 1} is missing, or is another one")

    def _refuse_large(self, what: str, content: bytes) -> None:
        if self._files.most is not None and len(content) > self._files.most:
            raise SgpuError(
                f"{what} of the state would have {len(content):,} bytes, and `{self.name}` gives "
                f"back {self._files.most:,}",
                hint="nothing was recorded; name a folder of a volume with `state.path`",
                code="state_unreachable",
            )

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
