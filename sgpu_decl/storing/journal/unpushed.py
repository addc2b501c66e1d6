"""Ops that the store of a journal did not take, kept on this machine until it does.

    .sgpu/<target>/unpushed/<lineage>-<serial>.json

They only save questions: an intent that is open is settled by asking its backend, too. So a file
that cannot be read is left out.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.errors import SgpuError
from sgpu_decl.storing.journal.ops import Op
from sgpu_decl.storing.state_folder import make_state_folder
from sgpu_decl.system_errors import error_text

_VERSION = 1


class Unpushed:
    """`home` is the folder of the target on this machine."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "unpushed"

    def keep(self, lineage: str, serial: int, changes: Sequence[Op]) -> Path:
        """Keep the ops that close intents of a state.

        Raises:
            SgpuError: they cannot be written.
        """
        file = self._folder / f"{lineage}-{serial}.json"
        content = {"v": _VERSION, "lineage": lineage, "serial": serial, "ops": list(changes)}
        try:
            make_state_folder(self._folder)
            write_atomic(file, json.dumps(content, separators=(",", ":")).encode("ascii"))
        except OSError as error:
            raise SgpuError(
                f"it could not be kept in `{file}`: {error_text(error)}", code="state_unreachable"
            ) from error
        return file

    def of(self, lineage: str) -> Iterator[tuple[Path, list[Any]]]:
        """What was kept for a state, oldest first."""
        files = (item for item in self._folder.glob("*.json"))
        for file in sorted(files, key=lambda item: (len(item.name), item.name)):
            changes = _ops_in(file, lineage)
            if changes is not None:
                yield file, changes

    def drop(self, file: Path) -> None:
        """Delete what was pushed. Where that fails, it is compared again by the next writer."""
        with suppress(OSError):
            file.unlink()


def _ops_in(file: Path, lineage: str) -> list[Any] | None:
    """The ops of a file; None if it is of another state, or cannot be read."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        content = json.loads(file.read_bytes())
        if content["v"] == _VERSION and content["lineage"] == lineage:
            return list(content["ops"])
    return None
