"""Entries as files of a place.

    <root>/<project>/<target>/entries/000000000001.json
    <root>/<project>/<target>/entries/compacted-000000000255
    <root>/<project>/<target>/checkpoints/000000000256.db.gz

A file is created only where its name is free. Times are those that the place gives to files.

Where folders take few files, those of entries have a hundred each, and lie in
`entries/000000000/`: a folder of a Databricks workspace takes 10,000 objects (its error is
MAX_CHILD_NODE_SIZE_EXCEEDED).

`compacted-N` says that the entries from 2 to N do not count any more, whether they are still there
or not. It is written before they are deleted, so that none of these numbers is given again. A state
that was compacted before 0.2 may lack it: there the oldest checkpoint says the same.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime

from sgpu_decl.atomic_files import LEFT_AFTER
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.places.file_place import PROBE, PlaceClock, PlaceEntry, PlaceMissing
from sgpu_decl.storing.journal.entry import digest
from sgpu_decl.storing.journal.port import Compacted, JournalGap, Stored, StoreDown
from sgpu_decl.storing.state_root import StateRoot

_AT_ONCE = 8  # requests
_ENTRY = re.compile(r"([0-9]{12})\.json")
_CHECKPOINT = re.compile(r"([0-9]{12})\.db\.gz")
_COMPACTED = re.compile(r"compacted-([0-9]{12})")
_BATCH = re.compile(r"[0-9]{9}")
_DRAFT = re.compile(r"\.new-[0-9a-f]{12}")  # a file or a folder
_PROBE = re.compile(rf"\.?({PROBE})?[0-9a-f]{{12}}")


class FileJournal:
    """The entries of one project and target."""

    def __init__(self, root: StateRoot, *, project: str, target: str) -> None:
        self._root = root
        self._place = root.place
        self._project = project
        self._home = f"{root.path}/{project}/{target}"
        self._entries = f"{self._home}/entries"
        self._checkpoints = f"{self._home}/checkpoints"
        self._clock = PlaceClock(root.place, self._home)

    @property
    def name(self) -> str:
        return self._root.name

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        content = text.encode("ascii")
        self._refuse_large("an entry", content)
        with self._root.explained():
            if number == 1:
                self._root.begin(f"{self._home}/conditions")
            elif not self._is_next(number, prev):
                return None
            if not self._root.create(self._entry(number), content):
                return None
            at, dropped = self._times_of(number)
            if 1 < number <= dropped:  # the number was taken meanwhile, and its entry deleted
                with suppress(BackendError):
                    self._place.delete(self._entry(number))
                return None
        if at is None:
            raise StoreDown(
                f"`{self.name}` does not show `{self._entry(number)}`, which was just added",
                hint="try again",
            )
        return self._clock.learn(at)

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        found: list[Stored] = []
        listed = None  # the folder whose list was read
        with self._root.explained():
            while most is None or len(found) < most:
                first = number + len(found) + 1
                batch: list[Stored] = []
                if self._folder(first) != listed:
                    listed = self._folder(first)
                    batch = self._listed(first, None if most is None else most - len(found))
                if not batch and self._place.lag:
                    batch = self._read([first], {})
                if not batch:
                    # Whether an entry is the newest one is asked often: with it and the next one.
                    if most is None or not found or first == 2:
                        self._refuse_missing(first, listed)
                    break
                found += batch
        if number == 0 and not found:
            self._root.require()
        return found

    def checkpoint(self) -> tuple[int, bytes] | None:
        return self._checkpoint(max)

    def oldest_checkpoint(self) -> tuple[int, bytes] | None:
        return self._checkpoint(min)

    def put_checkpoint(self, number: int, data: bytes) -> bool:
        self._refuse_large("a checkpoint", data)
        return self._root.create(self._checkpoint_file(number), data)

    def drop_before(self, number: int) -> None:
        with self._root.deleting():
            self._place.delete(f"{self._entries}/none")  # who may not delete finds out here
            checkpoints = sorted(self._numbers(self._checkpoints, _CHECKPOINT))
            if number not in checkpoints:
                raise StoreDown(
                    f"`{self.name}` does not list `{self._checkpoint_file(number)}`",
                    hint="nothing was deleted; try again",
                )
            self._delete(map(self._checkpoint_file, checkpoints[: checkpoints.index(number)]))
            last = max(number - 1, self._dropped())
            self._place.create(f"{self._entries}/compacted-{last:012}", b"\n")
            self._delete_entries(last)
            self._delete_drafts()

    def now(self) -> datetime:
        self._root.require()
        with self._root.explained():
            try:
                return self._clock.now()
            except PlaceMissing:
                self._place.make_folder(self._home)
                return self._clock.now()

    def targets(self) -> tuple[str, ...]:
        with self._root.explained():
            found = self._place.list(f"{self._root.path}/{self._project}")
            names = [entry.name for entry in found if entry.folder]
            first = (self.of_target(name)._entry(1) for name in names)
            there = [self._place.stat(path) is not None for path in first]
        return tuple(name for name, is_one in zip(names, there, strict=True) if is_one)

    def of_target(self, target: str) -> "FileJournal":
        return FileJournal(self._root, project=self._project, target=target)

    def close(self) -> None:
        self._root.close()

    def _folder(self, number: int) -> str:
        count = self._root.in_folder
        return self._entries if count is None else f"{self._entries}/{number // count:09}"

    def _entry(self, number: int) -> str:
        return f"{self._folder(number)}/{number:012}.json"

    def _checkpoint_file(self, number: int) -> str:
        return f"{self._checkpoints}/{number:012}.db.gz"

    def _numbers(self, folder: str, name: re.Pattern[str], after: str = "") -> dict[int, float]:
        """The numbers in names of files in a folder, and when each file was written."""
        return _numbers(self._place.list(folder, after=after), name)

    def _times_of(self, number: int) -> tuple[float | None, int]:
        """When an entry was written, and the number up to which entries do not count any more."""
        if self._root.in_folder is None:  # one list has both
            there = self._place.list(self._entries, after=_before(number))
            return _numbers(there, _ENTRY).get(number), max(_numbers(there, _COMPACTED), default=0)
        found = self._place.stat(self._entry(number))
        return None if found is None else found.modified, self._dropped()

    def _dropped(self) -> int:
        """The number up to which entries do not count any more, as a mark says."""
        return max(self._numbers(self._entries, _COMPACTED, "compacted"), default=0)

    def _lost(self) -> int:
        """The number up to which entries may be missing: a checkpoint has what they did."""
        checkpoints = self._numbers(self._checkpoints, _CHECKPOINT)
        if not checkpoints or self._place.stat(self._entry(2)) is not None:
            return 0
        return self._dropped() or min(checkpoints) - 1

    def _listed(self, first: int, most: int | None) -> list[Stored]:
        """The entries from `first` on, as far as their folder lists them.

        Raises:
            JournalGap: one is missing before another one.
        """
        there = self._place.list(self._folder(first), after=_before(first))
        times, dropped = _numbers(there, _ENTRY), max(_numbers(there, _COMPACTED), default=0)
        newest = max(times, default=0)
        last = newest if most is None else min(newest, first + most - 1)
        if max(first, 2) <= min(last, dropped):
            raise Compacted(self.name, dropped + 1)
        found = self._read(range(first, last + 1), times)
        for expected, item in enumerate(found, start=first):
            if item.number != expected:
                raise self._missing(expected)
        following = first + len(found)
        if following <= last and not (self._place.lag and following in times):
            raise self._missing(following)  # else it is listed, and shown in a moment
        return found

    def _read(self, numbers: Sequence[int], times: Mapping[int, float]) -> list[Stored]:
        """Those of the entries that can be read."""
        if len(numbers) < 2:
            found = [self._stored(number, times.get(number)) for number in numbers]
        else:
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                each = threads.map(lambda one: self._stored(one, times.get(one)), numbers)
                found = list(each)
        return [item for item in found if item is not None]

    def _stored(self, number: int, at: float | None) -> Stored | None:
        path = self._entry(number)
        content = self._root.read(path)
        if content is None:
            return None
        if at is None:
            found = self._place.stat(path)
            if found is None:
                return None
            at = found.modified
        return Stored(number=number, text=_text(content), at=datetime.fromtimestamp(at, UTC))

    def _refuse_missing(self, number: int, listed: str | None) -> None:
        """Entries that are there would stand behind one that is missing. `listed` is a folder whose
        entries have all been looked at.

        Raises:
            JournalGap: there are some.
        """
        count = self._root.in_folder
        if count is None:
            return
        for batch in self._batches():
            path = self._folder(batch * count)
            if batch < number // count or path == listed:
                continue
            if max(self._numbers(path, _ENTRY), default=0) > number:
                raise self._missing(number)

    def _batches(self) -> list[int]:
        """The numbers of the folders of entries."""
        found = self._place.list(self._entries)
        return [int(entry.name) for entry in found if _BATCH.fullmatch(entry.name)]

    def _missing(self, number: int) -> JournalGap:
        """The error for an entry that is not there."""
        lost = self._lost()
        if 1 < number <= lost:
            return Compacted(self.name, lost + 1)
        return JournalGap(f"entry {number} is missing")

    def _is_next(self, number: int, prev: str | None) -> bool:
        """Whether an entry may be added; false if its number was taken before. Entries that are
        missing now are lost: somebody deleted them, or a file system was unmounted."""
        before = self._root.read(self._entry(number - 1))
        if before is not None and prev in (None, digest(_text(before))):
            # The number after the first one, which stays, may be free again.
            return number > 2 or self._lost() < 2
        if self._place.stat(self._entry(number)) is not None or number <= self._lost():
            return False
        raise JournalGap(f"entry {number - 1} is missing, or is another one")

    def _checkpoint(self, choose: Callable[[Iterable[int]], int]) -> tuple[int, bytes] | None:
        """The checkpoint that `choose` takes, and its content. One that is being deleted is left
        out."""
        with self._root.explained():
            left = set(self._numbers(self._checkpoints, _CHECKPOINT))
            while left:
                number = choose(left)
                content = self._root.read(self._checkpoint_file(number))
                if content is not None:
                    return number, content
                left.remove(number)
        return None

    def _delete(self, paths: Iterable[str]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(self._place.delete, paths))

    def _delete_entries(self, last: int) -> None:
        """Delete those up to a number, but for the first one."""
        folders, count = [self._entries], self._root.in_folder
        if count is not None:
            batches = [batch for batch in self._batches() if batch * count <= last]
            whole = {batch for batch in batches if batch > 0 and (batch + 1) * count <= last + 1}
            self._delete(self._folder(batch * count) for batch in sorted(whole))
            folders = [self._folder(batch * count) for batch in batches if batch not in whole]
        for folder in folders:
            numbers = sorted(self._numbers(folder, _ENTRY))
            self._delete(self._entry(number) for number in numbers if 1 < number <= last)

    def _delete_drafts(self) -> None:
        """Delete what killed processes have left half-written."""
        oldest = (self._clock.now() - LEFT_AFTER).timestamp()
        above = (self._root.path, f"{self._root.path}/{self._project}", self._home)
        inside = (
            f"{self._home}/{name}" for name in ("entries", "checkpoints", "proposals", "clock")
        )
        for folder in (*above, *inside):
            for entry in self._place.list(folder):
                is_left = _DRAFT.fullmatch(entry.name) or (
                    not entry.folder and _PROBE.fullmatch(entry.name)
                )
                if is_left and 0 < entry.modified < oldest:
                    with suppress(BackendError):  # of another user
                        self._place.delete(f"{folder}/{entry.name}")

    def _refuse_large(self, what: str, content: bytes) -> None:
        most = self._place.part
        if most is not None and len(content) > most:
            raise SgpuError(
                f"{what} of the state would have {len(content):,} bytes, and `{self.name}` gives "
                f"back {most:,}",
                hint="nothing was recorded; name a folder of a volume with `state.path`",
                code="state_unreachable",
            )


def _numbers(entries: Iterable[PlaceEntry], name: re.Pattern[str]) -> dict[int, float]:
    """The numbers in names of files, and when each file was written."""
    matches = ((name.fullmatch(entry.name), entry.modified) for entry in entries)
    return {int(found[1]): modified for found, modified in matches if found is not None}


def _before(number: int) -> str:
    """The name after which lists begin with an entry."""
    return f"{number - 1:012}.json"


def _text(content: bytes) -> str:
    """The text of an entry. Bytes that sgpu has not written stay visible."""
    return content.decode("ascii", "backslashreplace")
