"""What nodes bring back into the launch folder, fetched when it is asked for and kept in the folder
of the attempt here. Which files there are: see `launch_folder`."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sgpu_decl.agent.node.upload import OPEN_RUN
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.backends.rank_values import SHOWN, masked_value
from sgpu_decl.backends.remote.files import RemoteFiles, RemoteMissing
from sgpu_decl.backends.remote.output_download import fetch_output, run_downloads
from sgpu_decl.backends.remote.remote_layout import BACK
from sgpu_decl.backends.remote.split_files import split_files
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.rank_output import Output
from sgpu_decl.model.step_progress import Progress

__all__ = ["RemoteResults"]

_DOWNLOADS = 8  # at once


class RemoteResults:
    """`remote` is the launch folder, `local` the attempt's folder on this machine."""

    def __init__(self, files: RemoteFiles, remote: str, local: Path) -> None:
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
                if "done" in names and "output" in names:
                    return True
                if "done" in names and "parts" in names:
                    report = self.done(attempt, int(node.name.removeprefix("node_")))
                    # What a rank returned may be in parts too.
                    if any(name.startswith("output/") for name in report.get("parts") or ()):
                        return True
        return False

    def outcome(self, attempt: int) -> dict[str, Any] | None:
        """How the agent of the first node says that it ended."""
        return _object(self._fetch(f"{attempt}/node_0/outcome.json"))

    def done(self, attempt: int, node: int) -> dict[str, Any]:
        """What a node said last: what it left behind, which files it brought in parts, and which
        ranks returned secrets; empty where it has not brought back all."""
        return _object(self._whole(f"{attempt}/node_{node}/done")) or {}

    def values(self, attempt: int, ranks: Sequence[tuple[int, int]]) -> list[dict[str, Json]]:
        """What ranks returned, of `(rank, node)`; a value that JSON cannot hold is named by the
        path of its pickle here."""
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
        has no rank, as those beside the driver of a Ray cluster, leaves Ray's logs there."""
        remote, folder = f"{self._remote}/{attempt}", self._local.parent / "output"
        reports = {node: self.done(attempt, node) for node in self._nodes(attempt)}
        split = {node: split_files(item, f"{remote}/node_{node}") for node, item in reports.items()}
        output = fetch_output(self._files, remote, split, folder, progress)
        lost = [str(item) for one in reports.values() for item in one.get("left") or ()]
        if not lost:
            return output
        lacking = tuple(sorted({*output.lacking, *lost}))
        why = output.why or "its node did not bring it back: write what is large to a volume"
        return replace(output, lacking=lacking, why=why)

    def _nodes(self, attempt: int) -> list[int]:
        """The nodes that brought something back."""
        names = [item.name for item in self._files.list(f"{self._remote}/{attempt}")]
        numbers = [name.removeprefix("node_") for name in names if name.startswith("node_")]
        return sorted(int(number) for number in numbers if number.isdigit())

    def _value(self, attempt: int, rank: int, node: int) -> dict[str, Json] | None:
        folder = f"{attempt}/node_{node}/ranks/{rank}"
        raw = self._fetch(f"{folder}/output.json")
        if raw is None:
            return None
        value: Json = json.loads(raw)
        if isinstance(value, dict) and isinstance(value.get("pickle"), str):
            name = str(value["pickle"]).rpartition("/")[2]
            if name == "output.pkl" and self._fetch(f"{folder}/{name}") is not None:
                value = {**value, "pickle": str(self._local / folder / name)}
        result: dict[str, Json] = {"rank": rank, "value": value}
        if rank in (self.done(attempt, node).get("masked") or ()):
            shown = self._fetch(f"{folder}/{SHOWN}")
            result |= masked_value(json.loads(shown or b"null"), self._local / folder)
        return result

    def _fetch(self, path: str) -> bytes | None:
        """A file, from here where it was fetched before. What is there is there whole and does not
        change; what is missing may come yet."""
        content = self._whole(path)
        if content is not None:
            return content
        attempt, node, name = path.split("/", 2)
        report = self.done(int(attempt), int(node.removeprefix("node_")))
        split = split_files(report, f"{self._remote}/{attempt}/{node}").get(name)
        if split is None:
            return None
        target = self._local / path
        scratch = target.with_name(f".{target.name}.parts")
        failed = run_downloads(
            {
                partial(split.fetch, self._files, number, scratch): name
                for number in split.missing(scratch)
            },
            lambda _: None,
        )
        for error in failed.values():
            raise error
        split.join(scratch, target)
        return target.read_bytes()

    def _whole(self, path: str) -> bytes | None:
        """A file that is not in parts."""
        file = self._local / path
        try:
            return file.read_bytes()
        except OSError:
            pass
        try:
            content = self._files.get(f"{self._remote}/{path}")
        except RemoteMissing:
            return None
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(file, content, durable=False)
        return content


def _object(raw: bytes | None) -> dict[str, Any] | None:
    if raw is None:
        return None
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
