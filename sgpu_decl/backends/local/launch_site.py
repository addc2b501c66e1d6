"""Where runs of this machine are launched from, in a state that several machines share."""

import json
import os
import uuid
from functools import lru_cache
from pathlib import Path

from sgpu_decl.errors import BackendError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.storing.state_folder import make_state_folder
from sgpu_decl.system_errors import advice, error_text

__all__ = ["LaunchSite", "check_site", "make_site", "site_id", "site_in"]

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
        with (state_dir / _FILE).open(encoding="ascii") as file:
            known, inode = file.read().split()
            return known if int(inode) == os.fstat(file.fileno()).st_ino else None
    except (OSError, ValueError):
        return None


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
