"""Copies of what attempts on boxes left and leave, in their folders on this machine: each look
brings what is new. The folder on the box is the truth; a copy may be deleted at any time."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sgpu_decl.agent.attempt.attempt_files import OUTCOME, SPEC, read_json
from sgpu_decl.agent.attempt.monitor_files import MONITOR
from sgpu_decl.agent.attempt.staged_folder import holds_launch
from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import write_cache
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.errors import BackendError
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Progress, Quiet

_GROWS = ("*.log", "*.idx", "*.dropped")

RECORD = (SPEC, "mlflow.json", "notices.json", OUTCOME)
"""What an ended attempt is known by; the outcome comes last."""
ACTIVITY = (MONITOR, "ranks/*/reported.json", *(f"ranks/{name}" for name in _GROWS))
RESULTS = ("ranks/*/output*",)
OUTPUT = ("output/*",)

_PART = ".part"
_SEEN = "seen.json"


def log_names(ranks: Sequence[int] | None = None) -> tuple[str, ...]:
    """Patterns of the logs of ranks; None for all."""
    below = ("ranks/",) if ranks is None else [f"ranks/{rank}/" for rank in ranks]
    return tuple(f"{folder}{name}" for folder in below for name in _GROWS)


class BoxMirror:
    """The copies of one project and target. `place_of` gives the box of a launch, and the folder of
    its attempt there."""

    def __init__(
        self, layout: AttemptLayout, place_of: Callable[[LaunchRecord], tuple[Box, str]]
    ) -> None:
        self._layout = layout
        self._place_of = place_of
        self._lock = threading.Lock()
        self.epochs: dict[str, int | None] = {}
        """When the clocks of attempts were 0, by their tokens; see `attempt_status`."""

    def folder(self, record: LaunchRecord) -> Path:
        """The copy of an attempt's folder. What lies there of another launch is deleted."""
        folder = self._layout.found(record)
        if (folder / SPEC).exists() and not holds_launch(folder, record.token):
            shutil.rmtree(folder, ignore_errors=True)
        return folder

    def begin(self, record: LaunchRecord, spec: bytes) -> None:
        """An attempt was staged there: its copy has its spec."""
        write_cache(self.folder(record) / SPEC, spec)

    def has_ended(self, record: LaunchRecord) -> bool:
        """Whether the copy says how the attempt ended: the box need not be asked then."""
        folder = self._layout.found(record)
        return (folder / OUTCOME).exists() and holds_launch(folder, record.token)

    def note(self, record: LaunchRecord, status: Mapping[str, Any]) -> None:
        """The box has just said how an attempt stands. The time of the file is that moment."""
        path = self.folder(record) / _SEEN
        if (read_json(str(path.parent), path.name) or {}).get(record.token) == status:
            with suppress(OSError):
                os.utime(path)
        else:
            write_cache(path, json.dumps({record.token: status}).encode())

    def noted(self, record: LaunchRecord) -> tuple[dict[str, Any], datetime] | None:
        """What the box said last, and when."""
        path = self.folder(record) / _SEEN
        seen = read_json(str(path.parent), path.name) or {}
        if record.token not in seen:
            return None
        return seen[record.token], datetime.fromtimestamp(path.stat().st_mtime, UTC)

    def pull(
        self, record: LaunchRecord, names: Sequence[str], progress: Progress | None = None
    ) -> Path:
        """Bring what is new of the files with these names, which may be patterns; return the copy.
        `progress` is told `fetching`, in bytes.

        Raises:
            BackendError: the box does not answer, or the copy cannot be written.
        """
        folder = self.folder(record)
        box, there = self._place_of(record)
        asked = {"folder": there, "names": names, "grows": _GROWS}
        with self._lock:
            have = dict(_held(folder))
            done, more = 0, True
            while more:
                answer, data = box.send("pull", {**asked, "have": have})
                at = 0
                for path, offset, size, total, changed in answer["files"]:
                    try:
                        _write(folder, path, offset, data[at : at + size], total, changed)
                    except OSError as error:
                        raise BackendError(
                            f"`{folder / path}` cannot be written: {error}"
                        ) from error
                    at += size
                    have[path] = [offset + size, changed]
                done += len(data)
                (progress or Quiet()).advance("fetching", done, done)
                more = answer["more"]
            self.epochs[record.token] = answer["epoch_ns"]
        return folder

    def forget(self, record: LaunchRecord) -> None:
        """Delete the copy."""
        shutil.rmtree(self._layout.found(record), ignore_errors=True)


def _held(folder: Path) -> list[tuple[str, list[int]]]:
    """The size and the time of each file of a copy, by its path."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with suppress(OSError):
                facts = os.stat(path)
                relative = os.path.relpath(path, folder)
                if not name.endswith(_PART):
                    found.append((relative, [facts.st_size, facts.st_mtime_ns]))
    return found


def _write(folder: Path, path: str, offset: int, piece: bytes, total: int, changed: int) -> None:
    """Write a piece of a file. One that is replaced as a whole gets its name when it is whole."""
    target = folder / path
    if not target.resolve().is_relative_to(folder.resolve()):
        raise OSError(f"the box names `{path}`")
    private_folder(target.parent)
    grows = f"*{target.suffix}" in _GROWS
    draft = target if grows else target.with_name(target.name + _PART)
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(draft, flags if offset or grows else flags | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.seek(offset)
        file.write(piece)
        if grows:
            file.truncate(offset + len(piece))
    if offset + len(piece) >= total:
        os.utime(draft, ns=(changed, changed))
        if not grows:
            draft.replace(target)
