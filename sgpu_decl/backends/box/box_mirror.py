"""Copies of what attempts on boxes left and leave, in their folders on this machine: each look
brings what is new. The folder on the box is the truth; a copy may be deleted at any time.

Of an attempt on several boxes, the copy has what the first one has, and the files of all ranks.
Other files of the others lie in `nodes/K` below it. Files of SGPU_OUTPUT_DIR come together from
there, by the names that they have on all backends (`content.output_pieces`).
"""

import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sgpu_decl.agent.attempt.attempt_files import OUTCOME, SPEC, read_json
from sgpu_decl.agent.attempt.monitor_files import MONITOR
from sgpu_decl.agent.attempt.staged_folder import holds_launch
from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import write_cache
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.content.output_pieces import merged_output
from sgpu_decl.errors import BackendError
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Progress, Quiet

_GROWS = ("*.log", "*.idx", "*.dropped")

RECORD = (SPEC, "mlflow.json", "notices.json", OUTCOME)
"""What an ended attempt is known by; the outcome comes last."""
ACTIVITY = (MONITOR, "ranks/*/reported.json", *(f"ranks/{name}" for name in _GROWS))
RESULTS = ("ranks/*/output*",)
OUTPUT = ("output/*",)
SHARED = (*RECORD, MONITOR)
"""What the first of several boxes says for all."""

_PART = ".part"
_SEEN = "seen.json"


def log_names(ranks: Sequence[int] | None = None) -> tuple[str, ...]:
    """Patterns of the logs of ranks; None for all."""
    below = ("ranks/",) if ranks is None else [f"ranks/{rank}/" for rank in ranks]
    return tuple(f"{folder}{name}" for folder in below for name in _GROWS)


class BoxMirror:
    """The copies of one project and target. `places_of` gives the boxes of a launch, and the folder
    of its attempt on each."""

    def __init__(
        self,
        layout: AttemptLayout,
        places_of: Callable[[LaunchRecord], Sequence[tuple[Box, str]]],
    ) -> None:
        self._layout = layout
        self._places_of = places_of
        self._lock = threading.Lock()
        self.epochs: dict[tuple[str, int], int | None] = {}
        """When the clocks of attempts were 0, by their tokens and nodes; see `attempt_status`."""

    def folder(self, record: LaunchRecord) -> Path:
        """The copy of an attempt's folder. What lies there of another launch is deleted."""
        folder = self._layout.found(record)
        if (folder / SPEC).exists() and not holds_launch(folder, record.token):
            shutil.rmtree(folder, ignore_errors=True)
        return folder

    def begin(self, record: LaunchRecord, spec: bytes) -> None:
        """An attempt was staged there: its copy has its spec."""
        write_cache(self.folder(record) / SPEC, spec)

    def end(self, record: LaunchRecord, status: Mapping[str, Any]) -> None:
        """An attempt ended so, by the word of others than its first box, which is away."""
        write_cache(self.folder(record) / OUTCOME, json.dumps(status).encode())

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
        with self._lock:
            for node, (box, there) in enumerate(self._places_of(record)):
                wanted = names if node == 0 else [name for name in names if name not in SHARED]
                of_ranks = [name for name in wanted if node == 0 or name.startswith("ranks/")]
                others = [name for name in wanted if name not in of_ranks]
                for place, some in ((folder, of_ranks), (node_folder(folder, node), others)):
                    if some:
                        answer = _pull(box, there, place, some, progress or Quiet())
                        self.epochs[record.token, node] = answer["epoch_ns"]
        return folder

    def merge_output(self, record: LaunchRecord) -> Path:
        """What was pulled of SGPU_OUTPUT_DIR from all boxes, as one folder. Raises BackendError."""
        folder = self.folder(record)
        count = len(self._places_of(record))
        if count == 1:
            return folder / "output"
        nodes = {f"node_{node}": node_folder(folder, node) for node in range(count)}
        files = {name: {"files": dict(_listed(nodes[name]))} for name in nodes}
        merged = folder / "merged"
        try:
            shutil.rmtree(merged, ignore_errors=True)
            for name, (piece,) in merged_output(files).items():
                private_folder((merged / name).parent)
                node, _, path = piece.path.partition("/")
                os.link(nodes[node] / path, merged / name)
        except OSError as error:
            raise BackendError(f"`{merged}` cannot be written: {error}") from error
        return merged

    def forget(self, record: LaunchRecord) -> None:
        """Delete the copy."""
        shutil.rmtree(self._layout.found(record), ignore_errors=True)


def node_folder(folder: Path, node: int) -> Path:
    """Where the copies of files of one of several boxes lie, in that of an attempt."""
    return folder / "nodes" / str(node) if node else folder


def _listed(folder: Path) -> list[tuple[str, Mapping[str, Any]]]:
    held = sorted(_held(folder / "output", ("*",)))
    return [(f"output/{name}", {"bytes": size, "sha256": None}) for name, (size, _) in held]


def _pull(
    box: Box, there: str, folder: Path, names: Sequence[str], progress: Progress
) -> dict[str, Any]:
    asked = {"folder": there, "names": names, "grows": _GROWS}
    have = dict(_held(folder, names))
    done, more = 0, True
    while more:
        answer, data = box.send("pull", {**asked, "have": have})
        at = 0
        for path, offset, size, total, changed in answer["files"]:
            try:
                _write(folder, path, offset, data[at : at + size], total, changed)
            except OSError as error:
                raise BackendError(f"`{folder / path}` cannot be written: {error}") from error
            at += size
            have[path] = [offset + size, changed]
        done += len(data)
        progress.advance("fetching", done, done)
        more = answer["more"]
    return answer


def _held(folder: Path, patterns: Sequence[str]) -> list[tuple[str, list[int]]]:
    """The size and the time of each file of a copy that one of the patterns names, by its path."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with suppress(OSError):
                facts = os.stat(path)
                relative = os.path.relpath(path, folder)
                held = any(fnmatchcase(relative, pattern) for pattern in patterns)
                if held and not name.endswith(_PART):
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
