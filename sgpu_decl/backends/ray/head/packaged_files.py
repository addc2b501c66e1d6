"""The head's folder, as launches use it. The files of a launch folder wait on this machine until
they travel in the package of the job, so a cluster that has all content needs no depot.

They wait in a folder of the project, where a later command finds them if this one is killed. If
content is sent to the head meanwhile, each launch folder first gets a lease there, which keeps gc
from deleting that content.
"""

import hashlib
import shutil
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.backends.ray.api.cluster_tables import list_jobs
from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.cluster.job_verdict import ACTIVE
from sgpu_decl.backends.ray.head.head_place import SMALL, HeadPlace
from sgpu_decl.backends.ray.head.head_reader import ROOT
from sgpu_decl.backends.remote.staging.lease import LEASE, YOUNG
from sgpu_decl.backends.remote.staging.remote_layout import MARKER, RemoteLayout
from sgpu_decl.model.step_progress import Sent
from sgpu_decl.places.file_place import byte_count, ignore_bytes

FOLDER = "sgpu.folder"
"""What the metadata of a job calls its launch folder, which the driver writes."""

_LAUNCHES = f"{RemoteLayout(ROOT).runs}/"


class PackagedFiles(HeadPlace):
    """Folders that are made below `runs`, and the small files in them, wait in the folder `waiting`
    of this machine. `get` finds them; `size` and `list` know the head alone."""

    def __init__(self, dashboard: Dashboard, waiting: Path) -> None:
        super().__init__(dashboard)
        self._waiting = waiting
        self._leased: dict[str, bool] = {}  # folders made here, and whether they have a lease there
        self._leasing = threading.Lock()

    def packaged(self, folder: str) -> dict[str, bytes]:
        """The files of a launch folder that wait, by name."""
        here = self._here(folder)
        paths = here.iterdir() if here.is_dir() else ()
        return {path.name: path.read_bytes() for path in paths if not path.name.startswith(".")}

    def forget(self, folder: str) -> None:
        """The files of a launch folder are on their way to the head, or were deleted."""
        with self._leasing:
            self._leased.pop(folder, None)
        shutil.rmtree(self._here(folder), ignore_errors=True)

    def sweep(self) -> None:
        """Delete what waits of launches that ended before they were staged. A launch that has its
        marker is completed by a later apply, however old it is."""
        for here in self._waiting.iterdir() if self._waiting.is_dir() else ():
            with suppress(FileNotFoundError):  # somebody else deletes it
                if time.time() - here.stat().st_mtime > YOUNG and not (here / MARKER).exists():
                    shutil.rmtree(here, ignore_errors=True)

    def has_unseen_launch(self, known: Collection[str]) -> bool:
        """Whether a job goes on whose launch folder is not among those `known`. Its driver may not
        have written it yet, also when it has joined the cluster."""
        jobs = list_jobs(self._reader.dashboard).values()
        metadata = [job.get("metadata") for job in jobs if job["status"] in ACTIVE]
        folders = {facts[FOLDER] for facts in metadata if facts and FOLDER in facts}
        return not folders.issubset(known)

    def make_folder(self, folder: str) -> None:
        if not folder.startswith(_LAUNCHES):
            self._write_leases()
            super().make_folder(folder)
            return
        private_folder(self._here(folder))
        self._leased.setdefault(folder, False)

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        folder, _, name = path.rpartition("/")
        here = self._here(folder)
        if not here.is_dir() or byte_count(content) > SMALL:
            self._write_leases()
            super().put(path, content, sent)
            return
        data = content if isinstance(content, bytes) else content.read_bytes()
        write_atomic(here / name, data)
        sent(len(data))

    def get(self, path: str) -> bytes:
        folder, _, name = path.rpartition("/")
        try:
            return (self._here(folder) / name).read_bytes()
        except FileNotFoundError:
            return super().get(path)

    def get_from_head(self, path: str) -> bytes:
        """A file that the head has, whatever waits here. Raises as `get` does."""
        return super().get(path)

    def delete(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        (self._here(folder) / name).unlink(missing_ok=True)
        self.forget(path)
        super().delete(path)

    def _write_leases(self) -> None:
        """Have a lease on the head for each launch folder that this process has made."""
        with self._leasing:
            for folder, leased in list(self._leased.items()):
                if not leased:
                    super().make_folder(folder)
                    super().put(f"{folder}/{LEASE}", b"1")
                    self._leased[folder] = True

    def _here(self, folder: str) -> Path:
        return self._waiting / hashlib.sha256(folder.encode()).hexdigest()[:32]
