"""Entries as objects of a bucket.

    <folder>/<project>/<target>/entries/000000000001.json
    <folder>/<project>/<target>/entries/compacted-000000000255
    <folder>/<project>/<target>/checkpoints/000000000256.db.gz

An object is created only where its name is free. Times are those that the store gives to objects,
as its lists have them. S3, Google and Azure list an object once it is written
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/Welcome.html#ConsistencyModel).

`compacted-N` says that the entries from 2 to N do not count any more, whether they are still there
or not. It is written before they are deleted, so that none of these numbers is given again.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime

from sgpu_decl.atomic_files import LEFT_AFTER
from sgpu_decl.errors import SgpuError
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
from sgpu_decl.storing.object.bucket import Bucket

__all__ = ["ObjectJournal"]

_COMPACTED = re.compile(r"compacted-([0-9]{12})")


class ObjectJournal:
    """The entries of one project and target."""

    def __init__(self, bucket: Bucket, *, project: str, target: str) -> None:
        self._bucket = bucket
        self._project = project
        self._home = f"{project}/{target}"
        self._entries = f"{self._home}/entries"
        self._checkpoints = f"{self._home}/checkpoints"
        self._clock = f"{self._home}/clock"

    @property
    def name(self) -> str:
        return self._bucket.name

    def append(self, number: int, text: str, *, prev: str | None = None) -> datetime | None:
        if number == 1:
            self._bucket.require_conditions(f"{self._home}/conditions")
        elif not self._is_next(number, prev):
            return None
        path = self._entry(number)
        if not self._bucket.create(path, text.encode("ascii")):
            return None
        times, dropped = self._listed(number - 1)
        if 1 < number <= dropped:  # the number was taken meanwhile, and its entry deleted
            with suppress(SgpuError):
                self._bucket.delete([path])
            return None
        at = times.get(number)
        if at is None:
            raise StoreDown(
                f"`{self.name}` does not list `{path}`, which was just added", hint="try again"
            )
        self._bucket.keep_time(at)
        return at

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        times, dropped = self._listed(number, most)
        wanted = range(number + 1, max(times, default=number) + 1)
        for item in wanted:
            if 1 < item <= dropped:
                raise Compacted(self.name, dropped + 1)
            if item not in times:
                raise JournalGap(f"entry {item} is missing")
        texts = [_text(found) for found in self._bucket.read_all(list(map(self._entry, wanted)))]
        if None in texts:
            raise StoreDown(f"entries of `{self.name}` are just being deleted", hint="try again")
        return [
            Stored(number=item, text=text, at=times[item])
            for item, text in zip(wanted, texts, strict=True)
            if text is not None
        ]

    def checkpoint(self) -> tuple[int, bytes] | None:
        return self._checkpoint(max)

    def oldest_checkpoint(self) -> tuple[int, bytes] | None:
        return self._checkpoint(min)

    def put_checkpoint(self, number: int, data: bytes) -> bool:
        return self._bucket.create(self._checkpoint_file(number), data)

    def drop_before(self, number: int) -> None:
        self._bucket.delete([f"{self._entries}/none"])  # who may not delete finds out here
        older = [item for item in self._kept_checkpoints() if item < number]
        self._bucket.delete(map(self._checkpoint_file, older))
        times, dropped = self._listed(0)
        last = max(number - 1, dropped)
        self._bucket.create(f"{self._entries}/compacted-{last:012}", b"\n")
        self._bucket.delete(self._entry(item) for item in times if 1 < item <= last)
        before = self.now() - LEFT_AFTER
        asked = self._bucket.names(self._clock)
        self._bucket.delete(f"{self._clock}/{name}" for name, at in asked if at < before)

    def now(self) -> datetime:
        return self._bucket.now(self._clock)

    def targets(self) -> tuple[str, ...]:
        names = self._bucket.folders(self._project)
        first = (self.of_target(name)._entry(1) for name in names)
        there = [self._bucket.written_at(path) is not None for path in first]
        return tuple(name for name, is_one in zip(names, there, strict=True) if is_one)

    def of_target(self, target: str) -> "ObjectJournal":
        return ObjectJournal(self._bucket, project=self._project, target=target)

    def close(self) -> None:
        """There is no connection that stays open."""

    def _entry(self, number: int) -> str:
        return f"{self._entries}/{entry_name(number)}"

    def _checkpoint_file(self, number: int) -> str:
        return f"{self._checkpoints}/{checkpoint_name(number)}"

    def _kept_checkpoints(self) -> list[int]:
        numbers = (checkpoint_number(name) for name, _ in self._bucket.names(self._checkpoints))
        return [number for number in numbers if number is not None]

    def _checkpoint(self, choose: Callable[[Iterable[int]], int]) -> tuple[int, bytes] | None:
        return found_checkpoint(
            self._kept_checkpoints(),
            choose,
            lambda number: self._bucket.read(self._checkpoint_file(number)),
        )

    def _is_next(self, number: int, prev: str | None) -> bool:
        """Whether an entry may be added; false if its number was taken before. Entries that are
        missing now are lost: somebody deleted them, for instance."""
        before = _text(self._bucket.read(self._entry(number - 1)))
        if before is not None and prev in (None, digest(before)):
            return True
        times, dropped = self._listed(number - 1)
        if max(dropped, *times, 0) >= number:
            return False
        raise JournalGap(f"entry {number - 1} is missing, or is another one")

    def _listed(self, number: int, most: int | None = None) -> tuple[dict[int, datetime], int]:
        """The entries after one, `most` of them at most, with their times; and the number up to
        which entries do not count any more."""
        times: dict[int, datetime] = {}
        dropped = 0
        for name, at in self._bucket.names(self._entries, after=entry_name(number)):
            if found := _COMPACTED.fullmatch(name):
                dropped = max(dropped, int(found[1]))
                continue
            entry = entry_number(name)
            if entry is not None and (most is None or len(times) < most):
                times[entry] = at
                if number == 0 and most == 1:
                    break  # the first one never goes
        return times, dropped


def _text(content: bytes | None) -> str | None:
    return None if content is None else entry_text(content)
