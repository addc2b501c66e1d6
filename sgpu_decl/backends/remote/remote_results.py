"""What nodes bring back into the launch folder, fetched when it is asked for and kept in the folder
of the attempt here. Which files there are: see `launch_folder`.

A node may be lost while it writes a file, and a shared folder may show a file before its content.
So a report counts, and is kept here, if it is a whole JSON object, and all else if the node wrote
`done`, which it does last, and if it is what that says, by its length and its SHA-256.
"""

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sgpu_decl.agent.attempt_files import parse_object
from sgpu_decl.agent.node.platform import ELSEWHERE
from sgpu_decl.agent.node.upload import OPEN_RUN
from sgpu_decl.agent.private_folder import private_folder
from sgpu_decl.agent.report_check import is_report
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.backends.rank_values import SHOWN, masked_value
from sgpu_decl.backends.remote.output_download import fetch_output, run_downloads
from sgpu_decl.backends.remote.remote_layout import BACK
from sgpu_decl.backends.remote.split_files import changed_there, split_files
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.rank_output import Output
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.places.file_place import FilePlace, PlaceMissing, cut_short

__all__ = ["RemoteResults"]

_DOWNLOADS = 8  # at once


class RemoteResults:
    """`remote` is the launch folder, `local` the attempt's folder on this machine."""

    def __init__(self, files: FilePlace, remote: str, local: Path) -> None:
        self._files = files
        self._remote = f"{remote}/{BACK}"
        self._local = local / BACK

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
        """Whether a node of any attempt brought back a file of SGPU_OUTPUT_DIR."""
        for attempt in reversed(self.attempts()):
            folder = f"{self._remote}/{attempt}"
            for node in self._files.list(folder):
                names = {entry.name for entry in self._files.list(f"{folder}/{node.name}")}
                if "done" not in names or not names & {"output", "parts"}:
                    continue
                report = self.done(attempt, int(node.name.removeprefix("node_")))
                # What a rank returned may be in parts too.
                split = any(name.startswith("output/") for name in report.get("parts") or ())
                if split or (report and "output" in names):
                    return True
        return False

    def outcome(self, attempt: int) -> dict[str, Any] | None:
        """How the agent of the first node says that it ended."""
        path = f"{attempt}/node_0/outcome.json"
        report = self._object(path) or parse_object(self._fetch(path) or b"")
        return report if report is not None and is_report(report) else None

    def done(self, attempt: int, node: int) -> dict[str, Any]:
        """What a node said last: what it left behind, which files it brought in parts, and which
        ranks returned secrets; empty where it has not brought back all."""
        report = self._object(f"{attempt}/node_{node}/done")
        return {"v": 1, **report} if report is not None else {}

    def values(self, attempt: int, ranks: Sequence[tuple[int, int]]) -> list[dict[str, Json]]:
        """What ranks returned, of `(rank, node)`; a value that JSON cannot hold is named by the
        path of its pickle here. Raises PlaceMissing where a node brought one that is gone since."""
        with ThreadPoolExecutor(_DOWNLOADS, thread_name_prefix="download") as pool:
            values = pool.map(lambda rank: self._value(attempt, *rank), ranks)
            return [value for value in values if value is not None]

    def error(self, attempt: int, rank: int, node: int, restart: int) -> bytes | None:
        """The pickled exception of a rank."""
        return self._fetch(f"{attempt}/node_{node}/ranks/{rank}/{restart}/error.pkl")

    def open_run(self, attempt: int) -> bool:
        """Whether its tracker left the MLflow run open."""
        return self._fetch(f"{attempt}/node_0/{OPEN_RUN}") is not None

    def output(self, attempt: int, progress: Progress) -> Output:
        """What all nodes left in SGPU_OUTPUT_DIR, beside what is here of the attempt. A node that
        has no rank, as those beside the driver of a Ray cluster, leaves Ray's logs there. Of one
        that did not bring back all, the files are lacking."""
        remote, folder = f"{self._remote}/{attempt}", self._local.parent / "output"
        reports = {node: self.done(attempt, node) for node in self._nodes(attempt)}
        whole = {node: report for node, report in reports.items() if report}
        output = fetch_output(self._files, remote, whole, folder, progress)
        lacking, reasons = list(output.lacking), [output.why] if output.why else []
        for node, report in reports.items():
            left = [str(item) for item in report.get("left") or ()]
            if not report:
                left = [f"node_{node}/output"]
                reasons.append(
                    f"node {node} did not upload all of its files: what it uploaded is in "
                    f"`{remote}/node_{node}`, and may be incomplete"
                )
            elif left:
                place = report.get("large_files") or ELSEWHERE
                reasons.append(f"its node did not bring it back: write large files to {place}")
            lacking += left
        return replace(output, lacking=tuple(sorted({*lacking})), why="; ".join(reasons[:1]))

    def _nodes(self, attempt: int) -> list[int]:
        """The nodes that had ranks, or that brought something back."""
        names = [item.name for item in self._files.list(f"{self._remote}/{attempt}")]
        numbers = [name.removeprefix("node_") for name in names if name.startswith("node_")]
        ranks = (self.outcome(attempt) or {}).get("ranks") or ()
        with_ranks = {int(rank.get("node_rank") or 0) for rank in ranks}
        return sorted({*with_ranks, *(int(number) for number in numbers if number.isdigit())})

    def _value(self, attempt: int, rank: int, node: int) -> dict[str, Json] | None:
        folder = f"{attempt}/node_{node}/ranks/{rank}"
        raw = self._brought(f"{folder}/output.json")
        if raw is None:
            return None
        value = _json(raw, f"{self._remote}/{folder}/output.json")
        if isinstance(value, dict) and isinstance(value.get("pickle"), str):
            name = str(value["pickle"]).rpartition("/")[2]
            if name == "output.pkl" and self._brought(f"{folder}/{name}") is not None:
                value = {**value, "pickle": str(self._local / folder / name)}
        result: dict[str, Json] = {"rank": rank, "value": value}
        if rank in (self.done(attempt, node).get("masked") or ()):
            shown = self._brought(f"{folder}/{SHOWN}") or b"null"
            try:
                result |= masked_value(json.loads(shown), self._local / folder)
            except ValueError as error:
                raise cut_short(f"{self._remote}/{folder}/{SHOWN}") from error
        return result

    def _brought(self, path: str) -> bytes | None:
        """As `_fetch`, of what the node of a rank says that it brought, as nodes do unless they are
        older. Raises PlaceMissing where that is gone."""
        attempt, node, name = path.split("/", 2)
        report = self.done(int(attempt), int(node.removeprefix("node_")))
        listed = None if "files" not in report else {*report["files"], *report.get("parts", ())}
        if listed is not None and name not in listed:
            return None
        content = self._fetch(path)
        if content is None and listed is not None:
            raise PlaceMissing(
                f"reading `{self._remote}/{path}`: it is not there any more",
                hint="somebody deleted it there",
            )
        return content

    def _object(self, path: str) -> dict[str, Any] | None:
        """A report of a node; None where it is not there, or not whole yet."""
        file = self._local / path
        with suppress(OSError):
            kept = parse_object(file.read_bytes())
            if kept is not None:
                return kept
        try:
            content = self._files.get(f"{self._remote}/{path}")
        except PlaceMissing:
            return None
        report = parse_object(content)
        if report is not None:
            _keep(file, content)
        return report

    def _fetch(self, path: str) -> bytes | None:
        """A file of a node that brought back all, from here where it was fetched before; None where
        it is missing. It does not change any more."""
        file = self._local / path
        attempt, node, name = path.split("/", 2)
        report = self.done(int(attempt), int(node.removeprefix("node_")))
        if not report:
            return None
        with suppress(OSError):
            return file.read_bytes()
        split = split_files(report, f"{self._remote}/{attempt}/{node}").get(name)
        if split is None:
            try:
                content = self._files.get(f"{self._remote}/{path}")
            except PlaceMissing:
                return None
            if len(content) != (report.get("files") or {}).get(name, len(content)):
                raise cut_short(f"{self._remote}/{path}")
            digest = (report.get("sha256") or {}).get(name)
            if digest not in (None, hashlib.sha256(content).hexdigest()):
                raise changed_there(f"{self._remote}/{path}")
            _keep(file, content)
            return content
        scratch = file.with_name(f".{file.name}.parts")
        failed = run_downloads(
            {
                partial(split.fetch, self._files, number, scratch): name
                for number in split.missing(scratch)
            },
            lambda _: None,
        )
        for error in failed.values():
            raise error
        split.join(scratch, file)
        return file.read_bytes()


def _keep(file: Path, content: bytes) -> None:
    private_folder(file.parent)
    write_atomic(file, content, durable=False)


def _json(content: bytes, path: str) -> Json:
    """Raises BackendError: it is no JSON, so its node had not written it whole."""
    try:
        value: Json = json.loads(content)
    except ValueError as error:
        raise cut_short(path) from error
    return value
