"""Proposals as files of a folder: of one that machines share, or of this machine's state.

<path>/<project>/<target>/proposals/<id>.json.gz
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from sgpu_decl.atomic_files import sync_folder
from sgpu_decl.regular_files import read_regular
from sgpu_decl.storing.state_folder import unreachable

__all__ = ["FolderProposalFiles"]


class FolderProposalFiles:
    """`home` is the folder of a target.

    Args:
        make: makes a folder in it.
        require: called first; it may raise where the proposals cannot be here.
        share: called with each new file, which is for this user alone before.
    """

    def __init__(
        self,
        home: Path,
        *,
        make: Callable[[Path], None],
        require: Callable[[], None] = lambda: None,
        share: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._folder = home / "proposals"
        self._make = make
        self._require = require
        self._share = share

    def add(self, name: str, content: bytes) -> None:
        with self._explained():
            self._make(self._folder)
            draft = self._folder / f".new-{os.urandom(6).hex()}"
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                handle = os.open(draft, flags, 0o600)
                with open(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    self._share(handle)
                    os.fsync(handle)
                draft.rename(self._folder / name)
                sync_folder(self._folder)
            finally:
                draft.unlink(missing_ok=True)

    def times(self) -> Mapping[str, datetime]:
        found = {}
        with self._explained(), suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found[entry.name] = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
        return found

    def read(self, name: str) -> bytes | None:
        with self._explained(), suppress(FileNotFoundError):
            return read_regular(self._folder / name)
        return None

    def delete(self, names: Iterable[str]) -> None:
        refused = None
        with self._explained():
            for name in names:
                try:
                    (self._folder / name).unlink(missing_ok=True)
                except PermissionError as error:  # its owner alone may, where the folder says so
                    refused = error
            if refused is not None:
                raise refused

    def now(self) -> datetime:
        """By the clock of this machine: who only reads may add no file that would tell the time. An
        hour more or less is nothing to a proposal."""
        return datetime.now(UTC)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            self._require()
            yield
        except OSError as error:
            raise unreachable(self._folder, error) from error
