"""The base of the stores of code and environments: objects by content, shared by all projects of a
user; references to them; gc."""

import contextlib
import errno
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.atomic_files import delete_left
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.owner import Owner, Presence
from sgpu_decl.staging.references import Reference, References
from sgpu_decl.system_errors import FULL, advice, error_text

YOUNG_SECONDS = 3600.0
"""An object of this age may still be on its way into a state: it is not deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """What nothing needs, in the order in which it is deleted: files, and trees of environments.
    `size` is the bytes of the content that is freed."""

    files: tuple[str, ...]
    trees: tuple[str, ...] = ()
    size: int = 0


class SharedStore(ABC):
    """Safe under concurrent writers, and under their deaths: every file enters under a temporary
    name and is renamed, and a manifest is written after its objects."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._references = References(root)

    def refer(self, owner: Owner, digests: Collection[str]) -> None:
        """Record that `owner` refers to these digests; replaces its earlier record.

        Raises:
            SgpuError: the record cannot be written.
        """
        try:
            self._prepare()
            self._references.refer(owner, digests)
        except OSError as error:
            raise SgpuError(
                f"the store `{self._root}` cannot record what this project needs of it: "
                f"{error_text(error)}",
                hint=advice(error),
                code="store_full" if error.errno in FULL else "store_unwritable",
            ) from error

    def absent_owners(self, ask: Callable[[Owner], Presence]) -> list[tuple[Reference, Presence]]:
        """The references of owners that are missing, or cannot be looked for."""
        return self._references.absent_owners(ask)

    def collect(
        self,
        ask: Callable[[Owner], Presence],
        *,
        now: float | None = None,
        dry_run: bool = False,
    ) -> int:
        """Delete what no owner refers to and is not young; returns the bytes that were freed.

        Args:
            ask: asks the store of a state whether that is there; see `staging.references`.
            now: seconds since the epoch; the current time if left out.
            dry_run: delete nothing, and return what would be freed.

        Raises:
            SgpuError: a reference or a manifest cannot be read, or nothing can be deleted.
        """
        now = now or time.time()
        try:
            if not self._root.is_dir():
                return 0
            self._prepare()
            with self._references.alone():
                gone = self._references.gone(ask, now=now)
                garbage = self._garbage(self._references.referred(without=gone), now)
                if not dry_run:
                    for record in gone:
                        record.unlink(missing_ok=True)
                    self._sweep(garbage)
                return garbage.size
        except OSError as error:
            raise store_error(self._root, error) from error

    @abstractmethod
    def _prepare(self) -> None:
        """Make the folders of the store."""

    @abstractmethod
    def _garbage(self, referred: set[str], now: float) -> Garbage:
        """All but what these digests need, and what is young. Nobody puts meanwhile.

        Raises:
            OSError: a manifest is there and cannot be read: it is not known what it needs.
        """

    def _sweep(self, garbage: Garbage) -> None:
        """Delete it. Nobody puts meanwhile."""
        for path in garbage.files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        for folder in self._root.glob("*/"):  # references are written without the lock
            delete_left(folder)


def store_error(store: Path, error: OSError) -> SgpuError:
    """The error of a store that cannot be written."""
    if error.errno in (*FULL, errno.EFBIG):
        return SgpuError(
            f"the disk of the store `{store}` is full: {error_text(error)}",
            hint="make room, for example by `sgpu gc`, and try again: what was copied is kept",
            code="store_full",
        )
    return SgpuError(
        f"the store `{store}` cannot be used: {error_text(error)}",
        hint=advice(error),
        code="store_unwritable",
    )
