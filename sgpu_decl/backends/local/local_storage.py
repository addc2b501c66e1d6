"""What attempts leave on this machine."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.agent.attempt import attempt_status
from sgpu_decl.agent.attempt.attempt_files import LAUNCH_LOCK
from sgpu_decl.agent.system.locks import open_lock, try_lock
from sgpu_decl.atomic_files import LEFT_AFTER
from sgpu_decl.backends.attempt_layout import AttemptLayout, launched
from sgpu_decl.backends.base import Storage
from sgpu_decl.backends.local.launch_site import attempt_folder, launched_here
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.system_errors import advice, error_text

if TYPE_CHECKING:
    from sgpu_decl.environments.environment_store import EnvironmentStore

_DISCARDED = ".discarded"
_STARTING = 30.0  # seconds in which an agent has begun, or has failed
_PAUSE = 0.01
DRAFT = ".staging-"
"""Stands between the name of an attempt's folder and what tells those that are being staged."""


class LocalStorage(Storage):
    """Only what was launched from this checkout is freed, whatever lies here under its name. The
    store of environments is opened where one is used."""

    def __init__(
        self, layout: AttemptLayout, environments: "Callable[[], EnvironmentStore]"
    ) -> None:
        self._layout = layout
        self._environments = environments

    def size(self, record: LaunchRecord) -> int:
        if not launched_here(record, self._layout):
            return 0
        return self._layout.size(self._layout.found(record))

    def free(self, record: LaunchRecord) -> int:
        folder = self._layout.found(record)
        try:
            if not launched_here(record, self._layout) or _alive(folder):
                return 0
            size = self.size(record)
            discard(folder)
        except OSError as error:
            raise BackendError(
                f"`{folder}` cannot be deleted: {error_text(error)}",
                hint=advice(error),
                code="permission_denied" if isinstance(error, PermissionError) else "backend_error",
            ) from error
        return size

    def unstage(self, record: LaunchRecord) -> None:
        folder = self._layout.found(record)
        if launched_here(record, self._layout) and not _alive(folder):
            shutil.rmtree(folder / "code", ignore_errors=True)

    def move(self, source: Address, destination: Address) -> None:
        self._layout.move(source, destination)

    def collect(self) -> int:
        """Delete what killed processes left beside attempts; what is shared lies in the stores."""
        runs = self._layout.state_dir / "runs"
        drafts = [draft for draft in runs.glob(f"*/*{DRAFT}*") if _abandoned(draft)]
        size = 0
        for folder in (*runs.glob(f"*/*{_DISCARDED}"), *drafts):
            size += self._layout.size(folder)
            shutil.rmtree(folder, ignore_errors=True)
        return size

    def kill_orphans(self, record: LaunchRecord) -> int:
        folder = attempt_folder(record, self._layout)
        return attempt_status.clear_remains(folder) if folder is not None else 0

    def verify_environment(self, digest: str) -> tuple[str, ...]:
        # Others are kept from it by the modes of files and folders.
        return self._environments().examine(digest) if os.geteuid() == 0 else ()


def give_up(folder: Path) -> bool:
    """Delete an attempt that was staged, so that nobody can start it any more. False where somebody
    has started it, or is about to: it stays."""
    try:
        claim = open_lock(os.fspath(folder / LAUNCH_LOCK))
    except FileNotFoundError:
        return True
    deadline = time.monotonic() + _STARTING
    try:
        while not try_lock(claim):  # an agent starts, or fails to
            if launched(folder) or time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE)
        if launched(folder):
            return False
        discard(folder)
    finally:
        os.close(claim)
    return True


def discard(folder: Path) -> None:
    """Delete an attempt's folder. It is renamed first, so that no half of it is left under its name
    if this process is killed meanwhile."""
    aside = folder.with_name(folder.name + _DISCARDED)
    if aside.exists():
        shutil.rmtree(aside)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _abandoned(draft: Path) -> bool:
    """Whether an attempt has not been staged any further for so long that whoever did it was
    killed. An apply that was stopped all that time finds it gone, and launches nothing."""
    oldest = time.time() - LEFT_AFTER.total_seconds()
    inside = (os.path.join(root, name) for root, _, names in os.walk(draft) for name in names)
    folders = (root for root, _, _ in os.walk(draft))
    try:
        return all(os.lstat(path).st_mtime < oldest for path in (*folders, *inside))
    except FileNotFoundError:
        return False  # somebody else deletes it, or it has its name now


def _alive(folder: Path) -> bool:
    """Whether something runs for an attempt, or waits to."""
    state = AttemptState(attempt_status.read_attempt(folder)["state"])
    return state.active and state is not AttemptState.STAGING
