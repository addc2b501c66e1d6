"""What nodes bring back into the launch folder, fetched when it is asked for and kept in the folder
of the attempt here. Which files there are: see `node`."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from sgpu_decl.backends.base import Output
from sgpu_decl.backends.databricks.complaints import Unknown
from sgpu_decl.backends.databricks.files import RemoteFiles
from sgpu_decl.backends.databricks.places import BACK
from sgpu_decl.environments.progress import Progress
from sgpu_decl.model.jsonable import Json

__all__ = ["Returned"]

_DOWNLOADS = 8  # at once


class Returned:
    """`remote` is the launch folder, `local` the attempt's folder on this machine."""

    def __init__(self, files: RemoteFiles, remote: str, local: Path) -> None:
        self._files = files
        self._remote = f"{remote}/{BACK}"
        self._local = local / BACK

    def attempts(self) -> tuple[int, ...]:
        """Those attempts of the platform that reached a node and brought something back."""
        found = self._files.list(self._remote)
        return tuple(sorted(int(it.name) for it in found if it.folder and it.name.isdigit()))

    def newest(self) -> int | None:
        """The last of them: what it left is what the run left."""
        return max(self.attempts(), default=None)

    def outcome(self, attempt: int) -> dict[str, Any] | None:
        """How the agent of the first node says that it ended."""
        return _object(self._fetch(f"{attempt}/node_0/outcome.json"))

    def values(self, attempt: int, ranks: Sequence[tuple[int, int]]) -> list[dict[str, Json]]:
        """What ranks returned, of `(rank, node)`; a value that JSON cannot hold is named by the
        path of its pickle here."""
        with ThreadPoolExecutor(_DOWNLOADS, thread_name_prefix="download") as pool:
            found = pool.map(lambda it: self._value(attempt, *it), ranks)
            return [value for value in found if value is not None]

    def error(self, attempt: int, rank: int, node: int, restart: int) -> bytes | None:
        """The pickled exception of a rank."""
        return self._fetch(f"{attempt}/node_{node}/ranks/{rank}/{restart}/error.pkl")

    def output(self, attempt: int, nodes: Sequence[int], progress: Progress) -> Output:
        """What ranks left in SGPU_OUTPUT_DIR on these nodes, beside what is here of the attempt."""
        from sgpu_decl.backends.databricks.fetching import fetch_output

        remote, folder = f"{self._remote}/{attempt}", self._local.parent / "output"
        found = fetch_output(self._files, remote, nodes, folder, progress)
        left = [it for node in nodes for it in self._left(attempt, node)]
        if not left:
            return found
        lacking = tuple(sorted({*found.lacking, *left}))
        why = found.why or "its node did not bring it back: write what is large to a volume"
        return replace(found, lacking=lacking, why=why)

    def _left(self, attempt: int, node: int) -> list[str]:
        """What a node did not bring back, being too much or too large."""
        done = _object(self._fetch(f"{attempt}/node_{node}/done")) or {}
        left = done.get("left")
        return [str(it) for it in left] if isinstance(left, list) else []

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
        return {"rank": rank, "value": value}

    def _fetch(self, path: str) -> bytes | None:
        """A file, from here where it was fetched before. What is there is there whole and does not
        change; what is missing may come yet."""
        kept = self._local / path
        try:
            return kept.read_bytes()
        except OSError:
            pass
        try:
            content = self._files.get(f"{self._remote}/{path}")
        except Unknown:
            return None
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = kept.with_name(f".{kept.name}.part")
        temporary.touch(mode=0o600)
        temporary.write_bytes(content)
        temporary.rename(kept)
        return content


def _object(raw: bytes | None) -> dict[str, Any] | None:
    if raw is None:
        return None
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
