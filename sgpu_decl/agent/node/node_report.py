"""What a node says of its part of a run: `report.json`, its last file, which it writes once.

The first line is the SHA-256 of all that follows. A node may be lost at any byte, and a shared
folder may show a file before its content: a report without a valid first line is none. The rest is
a JSON object:

    outcome        how the agent there says that the run ended; that of node 0 is the run's
    exit_code      of the node program
    mlflow_run_id  which attempt of the platform's this was
    open_run       whether the store of the MLflow run does not know yet how the attempt ended
    files          the `bytes` and the `sha256` of each uploaded file. One in parts has a list of
                   digests, `folder`, where the parts lie by number, and `part`, the bytes of each
                   but the last
    left           files of SGPU_OUTPUT_DIR that were not uploaded
    incomplete     the error that kept files from being uploaded; None where only limits did
    large_files    where the platform can keep large files
    masked         ranks whose results have values of secrets

A launch of version 0.1 has `outcome.json` instead and, from nodes that uploaded all, `done` and
`mlflow_open.json`. These are read until version 0.3.
"""

from __future__ import annotations

import hashlib
import os
import stat

from sgpu_decl.agent.attempt.attempt_files import OUTCOME, encode, parse_object
from sgpu_decl.agent.attempt.report_check import is_report
from sgpu_decl.agent.system.safe_files import regular_opener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    Report = dict[str, Any]
    Parse = Callable[[bytes], Report | None]
    Read = Callable[[str, Parse], Report | None]

REPORT = "report.json"


def seal(**report: object) -> bytes:
    """Return the content of a report."""
    body = encode({"v": 1, **report})
    return _digest(body) + b"\n" + body


def unseal(content: bytes) -> Report | None:
    """Return what a report says; None if it is not whole."""
    digest, _, body = content.partition(b"\n")
    report = parse_object(body) if digest == _digest(body) else None
    if report is None or not isinstance(report.get("files"), dict):
        return None
    outcome = report.get("outcome")
    known = isinstance(outcome, dict) and is_report(outcome)
    given = {"incomplete": None, "open_run": False, **report}
    return {**given, "outcome": outcome if known else None}


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def old_report(read: Read, below: Callable[[], Iterable[tuple[str, int]]]) -> Report | None:
    """Return the report of a node of version 0.1 that uploaded all; None where there is none.

    Args:
        read: reads a file of the folder that the node uploaded to, by its name, and returns what
            the given function makes of its content; None where it is not there.
        below: the names and sizes of all files in that folder: early nodes wrote none down.
    """
    done = read("done", parse_object)
    if done is None:
        return None
    sizes, digests = done.get("files"), done.get("sha256") or {}
    files = {
        name: {"bytes": size, "sha256": digests.get(name)}
        for name, size in (below() if sizes is None else sizes.items())
    }
    open_run = read("mlflow_open.json", parse_object) is not None
    found = {"outcome": read(OUTCOME, old_outcome), "open_run": open_run, "incomplete": None}
    return {**done, **found, "files": {**files, **(done.get("parts") or {})}}


def old_outcome(content: bytes) -> Report | None:
    """Return what a node of version 0.1 wrote first; None if it is not whole."""
    outcome = parse_object(content)
    return outcome if outcome is not None and is_report(outcome) else None


def read_report(folder: str) -> Report | None:
    """Return the report of a node that uploaded to a folder of this machine; None where there is
    none that is whole."""

    def read(name: str, parse: Parse) -> Report | None:
        try:
            with open(os.path.join(folder, name), "rb", opener=regular_opener) as file:
                return parse(file.read())
        except OSError:
            return None

    return read(REPORT, unseal) or old_report(read, lambda: files_below(folder))


def files_below(folder: str) -> Iterator[tuple[str, int]]:
    """Yield relative paths and sizes of regular files. Links may lead anywhere, and are ignored."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                yield os.path.relpath(path, folder), status.st_size
