"""Proposals as files of a folder: of one that machines share, or of this machine's state.

    <path>/<project>/<target>/proposals/<id>.json.gz

Times are those that the file system gives to files.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from sgpu_decl.regular_files import read_regular
from sgpu_decl.storing.folder.group_rights import make_shared_folder, share
from sgpu_decl.storing.proposals import KEPT, StoredProposal
from sgpu_decl.storing.state_folder import make_state_folder, unreachable

__all__ = ["FolderProposals"]

_FILE = re.compile(r"([0-9a-f]{32})\.json\.gz")


class FolderProposals:
    """`home` is the folder of a target. `root` is the folder of all projects, which machines share;
    None for the state of this machine, which is for its user alone."""

    def __init__(self, home: Path, *, root: Path | None = None) -> None:
        self._folder = home / "proposals"
        self._root = root
        self._mode = 0o600 if root is None else 0o660

    def propose(self, id: str, content: bytes) -> None:  # noqa: A002
        with self._explained():
            if self._root is None:
                make_state_folder(self._folder)
            else:
                make_shared_folder(self._folder, root=self._root)
            draft = self._folder / f".new-{id}"
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._mode)
            try:
                with open(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    if self._root is not None:
                        share(handle, self._mode, root=self._root)
                    os.fsync(handle)
                draft.rename(self._folder / f"{id}.json.gz")
            except OSError:
                draft.unlink(missing_ok=True)
                raise
            for at, name in self._files():
                if _expired(at):
                    with suppress(OSError):  # another one did, or its owner alone may
                        (self._folder / name).unlink()

    def proposals(self) -> Iterator[StoredProposal]:
        with self._explained():
            found = sorted(self._files(), reverse=True)
        for at, name in found:
            if _expired(at):
                return
            content = None
            with self._explained(), suppress(FileNotFoundError):
                content = read_regular(self._folder / name)
            if content is not None:
                yield StoredProposal(id=name.partition(".")[0], content=content, at=at)

    def close(self) -> None:
        """There is no connection."""

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
            yield
        except OSError as error:
            raise unreachable(self._folder, error) from error


def _expired(at: datetime) -> bool:
    return at < datetime.now(UTC) - KEPT
