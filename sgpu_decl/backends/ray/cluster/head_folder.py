"""The folder of the head node that holds launches where the cluster has no storage. The depot and
drivers write it.

It lies among the logs of Ray's session: the dashboard serves these to whoever may use it
(`ListLogs` and `StreamLog` in `ray/dashboard/modules/log/log_agent.py`; tried with 2.49.1 and
2.60), and they end with the session. Ray lists names alone, so each folder has an index with sizes
and times.
"""

from __future__ import annotations

import fcntl
import os

from ray._private import worker

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.backends.ray.cluster.head_names import DEPOT, HEAD_FOLDER, INDEX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def head_folder() -> str:
    """The path of the folder, on the head node, once this process has joined the cluster."""
    session = str(worker.global_worker.node.get_session_dir_path())
    return os.path.join(session, "logs", HEAD_FOLDER)


def make_folder(root: str, folder: str) -> None:
    """Make a folder below `root` and those above it, with their indexes. Raises OSError."""
    above = folder
    while above != root and not os.path.isdir(above):
        above = os.path.dirname(above)
    os.makedirs(folder, exist_ok=True)
    while folder != above:
        index_folder(folder)
        folder = os.path.dirname(folder)
    index_folder(above)


def write_launch(root: str, folder: str, files: Mapping[str, bytes], *, last: str) -> None:
    """Write files of a launch folder, by name, and that of the name `last` after all others: it
    says that they are there. Raises OSError."""
    make_folder(root, folder)
    for name in sorted(files, key=lambda name: name == last):
        attempt_files.write_atomic(folder, name, files[name])
    index_folder(folder)


def index_folder(folder: str) -> None:
    """Write what a folder holds to its index, which is JSON: names, each with `size` and `modified`
    of a file, and with nothing of a folder. Depot and drivers take turns. Raises OSError."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        entries: dict[str, dict[str, float]] = {}
        with os.scandir(folder) as found:
            for item in found:
                if item.name in (INDEX, DEPOT) or item.name.endswith(".tmp"):
                    continue
                if item.is_dir(follow_symlinks=False):
                    entries[item.name] = {}
                    continue
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # the driver renamed it
                entries[item.name] = {"size": status.st_size, "modified": status.st_mtime}
        content = attempt_files.encode({"v": 1, "entries": entries})
        attempt_files.write_atomic(folder, INDEX, content)
    finally:
        os.close(lock)


def index_tree(folder: str) -> None:
    """Index a folder, those below it first. Raises OSError."""
    for place, _, _ in os.walk(folder, topdown=False):
        index_folder(place)
