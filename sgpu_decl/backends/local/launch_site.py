"""Where runs of this machine are launched from, in a state that several machines share."""

import json
import os
import stat
import uuid
from functools import lru_cache
from pathlib import Path

from sgpu_decl.agent.attempt.attempt_files import OUTCOME
from sgpu_decl.agent.attempt.staged_folder import launched
from sgpu_decl.agent.system.safe_files import regular_opener
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.errors import BackendError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.storing.state_folder import make_state_folder, state_folder
from sgpu_decl.system_errors import advice, error_text

_FILE = "site"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSite:
    """`id` is that of a folder `.sgpu/<target>`, whatever its path; `host` is the machine, and
    `project` the folder of the project, as they were called at the launch."""

    id: str
    host: str
    project: str

    @property
    def words(self) -> str:
        """Words that follow "it was launched"."""
        return f"on {self.host}, in {self.project}"

    @property
    def reference(self) -> str:
        """What a `LaunchRecord` keeps of it."""
        fields = {"host": self.host, "id": self.id, "project": self.project}
        return json.dumps(fields, sort_keys=True)


def check_site(reference: str) -> None:
    """Check what a state says of where a run was launched.

    Raises:
        ValueError: it names no place.
    """
    said = json.loads(reference)
    names = {"host", "id", "project"}
    if not isinstance(said, dict) or said.keys() != names:
        raise ValueError("the reference of a launch does not say host, id and project")
    if not all(isinstance(item, str) for item in said.values()):
        raise ValueError("the reference of a launch holds what is no text")


@lru_cache
def site_in(reference: str) -> LaunchSite:
    return LaunchSite(**json.loads(reference))


def site_id(state_dir: Path) -> str | None:
    """The id of this folder; None if nothing was ever launched from it, if it is damaged, or if it
    is a copy of another one."""
    try:
        with open(state_dir / _FILE, encoding="ascii", opener=regular_opener) as file:
            known, inode = file.read().split()
            return known if int(inode) == os.fstat(file.fileno()).st_ino else None
    except (OSError, ValueError):
        return None


def launched_here(record: LaunchRecord, layout: AttemptLayout) -> bool:
    """Whether an attempt was launched from this checkout: no other one deletes its files."""
    return record.reference is None or site_in(record.reference).id == site_id(layout.state_dir)


def attempt_folder(record: LaunchRecord, layout: AttemptLayout) -> Path | None:
    """The folder of an attempt, also one that another checkout of this user has launched on this
    machine; None if it can be asked elsewhere alone."""
    if record.reference is None:  # no other machine has this state
        return layout.found(record)
    site = site_in(record.reference)
    named = site.host == os.uname().nodename
    if not launched_here(record, layout):
        return _in_other_checkout(site, record, layout) if named else None
    folder = layout.found(record)
    # Under another name, this machine may still be the one; an outcome is true on any.
    return folder if named or (folder / OUTCOME).exists() else None


def _in_other_checkout(
    site: LaunchSite, record: LaunchRecord, layout: AttemptLayout
) -> Path | None:
    """The folder of an attempt that another checkout has launched. The state says where that is,
    and others write the state: the folder counts if only this user can have made it."""
    try:
        state_dir, remote = _state_folder(site.project, layout.state_dir.name)
        # A file server names any user as the owner of a file.
        alike = remote is None or state_dir.stat().st_dev == layout.state_dir.stat().st_dev
        if not (alike and _is_private(state_dir) and site_id(state_dir) == site.id):
            return None
    except (OSError, RuntimeError, ValueError):  # the path may be any text
        return None
    folder = AttemptLayout(state_dir).holder(record)
    return folder if folder is not None and launched(folder) else None


@lru_cache
def _state_folder(project: str, target: str) -> tuple[Path, str | None]:
    return state_folder(Path(project).resolve(strict=True), target)


def _is_private(state_dir: Path) -> bool:
    """Whether a state folder is this user's, and nobody else can write into it or replace it.

    Raises:
        OSError: it is not there.
    """
    for folder in (state_dir, state_dir.parent):
        status = folder.lstat()
        ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not ours or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
    above = (folder.stat().st_mode for folder in state_dir.parent.parents)
    return all(mode & stat.S_ISVTX or not mode & stat.S_IWOTH for mode in above)


def make_site(state_dir: Path, project: Path) -> LaunchSite:
    """The site of this folder, which gets an id at its first launch.

    Raises:
        BackendError: the id cannot be written.
    """
    known = site_id(state_dir)
    if known is None:
        known, path = uuid.uuid4().hex, state_dir / _FILE
        try:
            make_state_folder(state_dir)
            _write(path, known)
        except OSError as error:
            raise BackendError(
                f"`{path}` cannot be written: {error_text(error)}",
                hint=advice(error),
                code="launch_failed",
            ) from error
    return LaunchSite(id=known, host=os.uname().nodename, project=os.fspath(project))


def _write(path: Path, site: str) -> None:
    """Write an id with the number of the file itself, which a copy of the folder does not have, and
    which stays if the folder gets another name."""
    draft = path.with_name(f".new-{os.urandom(6).hex()}")
    try:
        with draft.open("w", encoding="ascii") as file:
            file.write(f"{site} {os.fstat(file.fileno()).st_ino}\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
