"""What nodes bring back into the launch folder, fetched when it is asked for and kept in the folder
of the attempt here. Which files there are: see `launch_folder`.

A node may be lost while it writes a file, and a shared folder may show a file before its content.
So nothing counts, or is kept here, but a report with a valid seal (`node_report`), and files as
that names them, by their length and their SHA-256.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sgpu_decl.agent.attempt.attempt_files import OUTCOME, parse_object
from sgpu_decl.agent.attempt.monitor_files import MONITOR
from sgpu_decl.agent.node.node_report import REPORT, old_outcome, old_report, unseal
from sgpu_decl.agent.node.platform import ELSEWHERE
from sgpu_decl.agent.node.upload import NOT_UPLOADED
from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.backends.rank_values import SHOWN, masked_value
from sgpu_decl.backends.remote.staging.remote_layout import BACK
from sgpu_decl.backends.remote.watching.output_download import alone, fetch_files, fetch_output
from sgpu_decl.content.output_pieces import has_output, pieces_of
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.rank_output import Output
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.places.file_place import FilePlace, PlaceMissing, cut_short

_DOWNLOADS = 8  # at once


class RemoteResults:
    """`remote` is the launch folder, `local` the attempt's folder on this machine. Nodes of a
    launch that is not `sealed` may be of version 0.1; see `node_report`."""

    def __init__(self, files: FilePlace, remote: str, local: Path, *, sealed: bool = False) -> None:
        self._files = files
        self._remote = f"{remote}/{BACK}"
        self._local = local / BACK
        self._sealed = sealed
        self._reports: dict[str, dict[str, Any]] = {}

    def attempts(self) -> tuple[int, ...]:
        """Those attempts of the platform that reached a node and brought something back."""
        entries = self._files.list(self._remote)
        return tuple(
            sorted(int(item.name) for item in entries if item.folder and item.name.isdigit())
        )

    def newest(self) -> int | None:
        """The last of them: what it left is what the run left. Its folder is made before ranks
        start, so it is empty if the first node was lost."""
        return max(self.attempts(), default=None)

    def left_output(self) -> bool:
        """Whether a node of any attempt brought back all files of SGPU_OUTPUT_DIR, and there were
        some: `resume` finds them."""
        for attempt in reversed(self.attempts()):
            for node in self._uploads(attempt):
                report = self.report(attempt, node)
                if report and report["incomplete"] is None and has_output(report):
                    return True
        return False

    def outcome(self, attempt: int) -> dict[str, Any] | None:
        """How the agent of the first node says that it ended."""
        report = self.report(attempt, 0)
        if report or self._sealed:
            return report.get("outcome")
        return self._read(f"{attempt}/node_0", OUTCOME, old_outcome)

    def monitor(self, attempt: int) -> dict[str, Any]:
        """What the monitor of node 0 saw last, see `agent.attempt.monitor_files`; empty where it
        has told nothing."""
        try:
            return parse_object(self._files.get(f"{self._remote}/{attempt}/{MONITOR}")) or {}
        except PlaceMissing:
            return {}

    def report(self, attempt: int, node: int) -> dict[str, Any]:
        """What a node said last, see `node_report`; empty where it has not said it."""
        folder = f"{attempt}/node_{node}"
        if folder not in self._reports:
            found = self._read(folder, REPORT, unseal)
            if found is None and not self._sealed:
                below = partial(self._below, f"{self._remote}/{folder}", "")
                found = old_report(partial(self._read, folder), below)
            if found is None:
                return {}
            self._reports[folder] = found
        return self._reports[folder]

    def values(self, attempt: int, ranks: Sequence[tuple[int, int]]) -> list[dict[str, Json]]:
        """What ranks returned, of `(rank, node)`; a value that JSON cannot hold is named by the
        path of its pickle here. Raises PlaceMissing where a node brought one that is gone since."""
        with ThreadPoolExecutor(_DOWNLOADS, thread_name_prefix="download") as pool:
            values = pool.map(lambda rank: self._value(attempt, *rank), ranks)
            return [value for value in values if value is not None]

    def node_files(self, attempt: int, name: str) -> dict[int, Path]:
        """The file of a name that each node brought back, by its number."""
        paths = {node: f"{attempt}/node_{node}/{name}" for node in self._uploads(attempt)}
        return {
            node: self._local / path
            for node, path in paths.items()
            if self._fetch(path) is not None
        }

    def error(self, attempt: int, rank: int, node: int, restart: int) -> bytes | None:
        """The pickled exception of a rank."""
        return self._fetch(f"{attempt}/node_{node}/ranks/{rank}/{restart}/error.pkl")

    def output(self, attempt: int, progress: Progress) -> Output:
        """What all nodes left in SGPU_OUTPUT_DIR, beside what is here of the attempt. A node that
        has no rank, as those beside the driver of a Ray cluster, leaves Ray's logs there. Of one
        that did not bring back all, the files are lacking."""
        remote, folder = f"{self._remote}/{attempt}", self._local.parent / "output"
        reports = {node: self.report(attempt, node) for node in self._nodes(attempt)}
        uploads = {f"{remote}/node_{node}": report for node, report in reports.items() if report}
        output = fetch_output(self._files, uploads, folder, progress)
        lacking, reasons = list(output.lacking), [output.why] if output.why else []
        for node, report in reports.items():
            left = [str(item) for item in report.get("left") or ()]
            if not report:
                left = [f"node_{node}/output"]
                reasons.append(
                    f"node {node} did not upload all of its files: what it uploaded is in "
                    f"`{remote}/node_{node}`, and may be incomplete"
                )
            elif left and report["incomplete"] is not None:
                reasons.append(f"node {node} could not upload it: {report['incomplete']}")
            elif left:
                place = report.get("large_files") or ELSEWHERE
                reasons.append(f"its node did not bring it back: write large files to {place}")
            lacking += left
        return replace(output, lacking=tuple(sorted({*lacking})), why="; ".join(reasons[:1]))

    def _nodes(self, attempt: int) -> list[int]:
        """The nodes that had ranks, or that brought something back."""
        ranks = (self.outcome(attempt) or {}).get("ranks") or ()
        with_ranks = {int(rank.get("node_rank") or 0) for rank in ranks}
        return sorted({*with_ranks, *self._uploads(attempt)})

    def _uploads(self, attempt: int) -> list[int]:
        """The nodes that brought something back."""
        names = [item.name for item in self._files.list(f"{self._remote}/{attempt}")]
        numbers = [name.removeprefix("node_") for name in names if name.startswith("node_")]
        return [int(number) for number in numbers if number.isdigit()]

    def _value(self, attempt: int, rank: int, node: int) -> dict[str, Json] | None:
        folder = f"{attempt}/node_{node}/ranks/{rank}"
        raw = self._fetch(f"{folder}/output.json")
        report = self.report(attempt, node)
        if raw is None and report.get("exit_code") == NOT_UPLOADED:
            raise BackendError(
                f"what rank {rank} returned was not uploaded: {report['incomplete']}",
                hint=f"see that `{self._remote}` can be written and has room, and launch the run "
                "again (`--rerun`)",
                code="remote_broken",
            )
        if raw is None:
            return None
        value = _json(raw, f"{self._remote}/{folder}/output.json")
        if isinstance(value, dict) and isinstance(value.get("pickle"), str):
            name = str(value["pickle"]).rpartition("/")[2]
            if name == "output.pkl" and self._fetch(f"{folder}/{name}") is not None:
                value = {**value, "pickle": str(self._local / folder / name)}
        result: dict[str, Json] = {"rank": rank, "value": value}
        if rank in (report.get("masked") or ()):
            shown = self._fetch(f"{folder}/{SHOWN}") or b"null"
            given = _json(shown, f"{self._remote}/{folder}/{SHOWN}")
            result |= masked_value(given, self._local / folder)
        return result

    def _read(
        self, folder: str, name: str, parse: Callable[[bytes], dict[str, Any] | None]
    ) -> dict[str, Any] | None:
        """What a file of a node says; None where it is not there, or cannot be parsed, and is not
        kept here."""
        file = self._local / folder / name
        with suppress(OSError):
            kept = parse(file.read_bytes())
            if kept is not None:
                return kept
        try:
            content = self._files.get(f"{self._remote}/{folder}/{name}")
        except PlaceMissing:
            return None
        report = parse(content)
        if report is not None:
            private_folder(file.parent)
            write_atomic(file, content, durable=False)
        return report

    def _below(self, folder: str, parent: str) -> Iterator[tuple[str, int]]:
        """Paths of files, relative to where it began, and their sizes."""
        for item in self._files.list(folder):
            path = f"{parent}{item.name}"
            if item.folder:
                yield from self._below(f"{folder}/{item.name}", f"{path}/")
            else:
                yield path, item.size

    def _fetch(self, path: str) -> bytes | None:
        """A file that a node's report names, from here where it was fetched before; None where it
        names no such file. It does not change any more."""
        attempt, folder, name = path.split("/", 2)
        report = self.report(int(attempt), int(folder.removeprefix("node_")))
        found = report.get("files", {}).get(name)
        if found is None:
            return None
        target = self._local / path
        pieces = pieces_of(f"{self._remote}/{attempt}/{folder}", name, found)
        scratch = target.with_name(f".{target.name}.parts")
        private_folder(target.parent)
        with alone(target.parent, Quiet()):
            if not target.exists():
                private_folder(scratch)
                for error in fetch_files(self._files, {target: pieces}, scratch, Quiet()).values():
                    raise error
                scratch.rmdir()
        return target.read_bytes()


def _json(content: bytes, path: str) -> Json:
    """Raises BackendError: it is no JSON, so its node had not written it whole."""
    try:
        value: Json = json.loads(content)
    except ValueError as error:
        raise cut_short(path) from error
    return value
