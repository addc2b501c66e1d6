"""Large files that nodes brought back in parts, where a storage is read in small files only, and
the check that a file is the one that a node wrote.

`done` of a node has the index. Each part is checked by its SHA-256 and kept until the file is
whole, so a fetch that was interrupted goes on with the part that it was at.
"""

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgpu_decl.agent.private_folder import private_folder
from sgpu_decl.errors import BackendError
from sgpu_decl.model.step_progress import Sent
from sgpu_decl.places.file_place import FilePlace

__all__ = ["SplitFile", "changed_there", "file_digest", "split_files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFile:
    """One file: its size in bytes, that of each part but the last, the folder of the parts, and
    their SHA-256."""

    bytes: int
    part: int
    folder: str
    sha256: tuple[str, ...]

    def missing(self, scratch: Path) -> list[int]:
        """The numbers of the parts that are not in the folder `scratch` yet."""
        numbers = range(len(self.sha256))
        return [number for number in numbers if not self._part(scratch, number).exists()]

    def size(self, number: int) -> int:
        """Bytes of a part."""
        return min(self.part, self.bytes - number * self.part)

    def fetch(self, files: FilePlace, number: int, scratch: Path, received: Sent) -> None:
        """Bring one part to the folder `scratch`; `received` is told of its bytes.

        Raises:
            BackendError: the storage does not answer, or the part is damaged.
        """
        source, target = f"{self.folder}/{number}", self._part(scratch, number)
        private_folder(scratch)
        partial = target.with_suffix(".partial")
        files.fetch(source, partial, received)
        if file_digest(partial) != self.sha256[number]:
            partial.unlink()
            raise changed_there(source)
        partial.rename(target)

    def join(self, scratch: Path, target: Path) -> None:
        """Make the file of its parts, whole or not at all, and delete them."""
        whole = scratch / "whole"
        whole.touch(mode=0o600)
        with whole.open("wb") as file:
            for number in range(len(self.sha256)):
                with self._part(scratch, number).open("rb") as part:
                    shutil.copyfileobj(part, file, 1 << 20)
        whole.rename(target)
        shutil.rmtree(scratch)

    def _part(self, scratch: Path, number: int) -> Path:
        return scratch / f"{number}-{self.sha256[number][:16]}"


def file_digest(path: Path) -> str:
    """The SHA-256 of a file here, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def changed_there(source: str) -> BackendError:
    """The error of a file whose content is not what its node wrote."""
    return BackendError(
        f"reading `{source}`: it is not what the node wrote there",
        hint="try again; if that does not help, it is damaged there, or somebody changed it",
        code="remote_broken",
    )


def split_files(report: Mapping[str, Any], folder: str) -> dict[str, SplitFile]:
    """The files that a node brought back in parts, by their names, from its `done`.

    Args:
        folder: where the node brought things: `…/back/N/node_K`.
    """
    return {
        name: SplitFile(
            bytes=int(item["bytes"]),
            part=int(item["part"]),
            folder=f"{folder}/{item['folder']}",
            sha256=tuple(item["sha256"]),
        )
        for name, item in (report.get("parts") or {}).items()
    }
