"""Proposals as files of a folder: of one that machines share, or of this machine's state.

    <path>/<project>/<target>/proposals/<id>.json.gz

Times are those that the file system gives to files.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from sgpu_decl.regular_files import read_regular
from sgpu_decl.storing.proposals import KEPT, StoredProposal
from sgpu_decl.storing.state_folder import unreachable

__all__ = ["FolderProposals"]

_FILE = re.compile(r"([0-9a-f]{32})\.json\.gz")


class FolderProposals:
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

    def propose(self, id: str, content: bytes) -> None:  # noqa: A002
        with self._explained():
            self._make(self._folder)
            draft = self._folder / f".new-{id}"
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with open(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    self._share(handle)
                    os.fsync(handle)
                draft.rename(self._folder / f"{id}.json.gz")
            except OSError:
                draft.unlink(missing_ok=True)
                raise
            for name in self._expired():
                with suppress(OSError):  # another one did, or its owner alone may
                    (self._folder / name).unlink()

    def proposals(self) -> Iterator[StoredProposal]:
        with self._explained():
            found = sorted(self._files(), reverse=True)
        for at, name in found:
            if _is_expired(at):
                return
            content = None
            with self._explained(), suppress(FileNotFoundError):
                content = read_regular(self._folder / name)
            if content is not None:
                yield StoredProposal(id=name.partition(".")[0], content=content, at=at)

    def drop_expired(self) -> int:
        with self._explained():
            expired = self._expired()
            for name in expired:
                (self._folder / name).unlink(missing_ok=True)
            return len(expired)

    def close(self) -> None:
        """There is no connection."""

    def _expired(self) -> list[str]:
        return [name for at, name in self._files() if _is_expired(at)]

    def _files(self) -> list[tuple[datetime, str]]:
        found = []
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                if _FILE.fullmatch(entry.name):
                    with suppress(FileNotFoundError):
                        at = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
                        found.append((at, entry.name))
        return found

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            self._require()
            yield
        except OSError as error:
            raise unreachable(self._folder, error) from error


def _is_expired(at: datetime) -> bool:
    return at < datetime.now(UTC) - KEPT
