"""The record of an attempt on its host. It outlives the attempt folder if somebody deletes that.

It lies beside the locks of ports. Guardian and supervisor share one open file, which is locked:
once the lock is free, both have ended. The first line names the two processes and the attempt. The
second line is the time of the supervisor's last sign of life, every 10 s, by CLOCK_MONOTONIC: a
suspended machine or a changed clock does not look like a hang.

It is read if the attempt's folder or `supervisor.lock` is missing. While it is locked, the attempt
is `stopping`. If the state lacks the attempt too, it is added in memory, so that a plan treats it
as any active run.

    HOST/attempts/<digest of the folder of all runs>/<folder of the run>.<number of the attempt>
"""

from __future__ import annotations

import fcntl
import os
import time

from sgpu_decl.agent.attempt.attempt_files import SUPERVISOR_LOCK, encode, parse_object
from sgpu_decl.agent.system.host_locks import host_lock_folder, host_lock_home
from sgpu_decl.agent.system.locks import held, wait_until_free
from sgpu_decl.agent.system.processes import carriers_by_cookie
from sgpu_decl.agent.system.safe_files import regular_opener

try:  # it loads in a tenth of the time of hashlib's OpenSSL
    from _sha256 import sha256  # type: ignore[import-not-found]
except ImportError:
    from hashlib import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BEAT = 10.0  # seconds between two signs of life
_DIGITS = 20
_ABANDONED = 3600.0  # seconds until a record without its name is one of a process that was killed


class HostRecord:
    """Taken by the guardian before it forks, and published by the supervisor."""

    def __init__(self, run_dir: str) -> None:
        """Open and lock a record, which others see after `publish`.

        Raises:
            OSError: it cannot be written.
        """
        host_lock_folder("attempts")
        self._path = record_path(run_dir)
        self._temporary = f"{self._path}.{os.getpid()}.tmp"
        self._descriptor = self._create()
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._beat_at = 0

    def _create(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        while True:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            try:
                return os.open(self._temporary, flags, 0o600)
            except FileNotFoundError:
                continue  # another run dropped the last record, and the folder

    def publish(self, identity: dict[str, Any]) -> None:
        """Give the record its name, so that others see it.

        Raises:
            OSError: it cannot be written.
        """
        head = encode(identity) + b"\n"
        os.pwrite(self._descriptor, head, 0)
        self._beat_at = len(head)
        self.beat()
        os.rename(self._temporary, self._path)

    def beat(self) -> None:
        """Write a sign of life. A failure is ignored: readers see an older one."""
        try:
            os.pwrite(self._descriptor, b"%0*d" % (_DIGITS, time.monotonic_ns()), self._beat_at)
        except OSError:
            return

    def drop(self) -> None:
        """Remove it: the attempt has ended, and its folder says how."""
        for path in (self._path, self._temporary):
            try:
                if os.stat(path).st_ino == os.fstat(self._descriptor).st_ino:
                    os.unlink(path)
            except FileNotFoundError:
                continue
        try:
            os.rmdir(os.path.dirname(self._path))
        except OSError:
            return  # there are others


def record_path(run_dir: str) -> str:
    """Return where the record of the attempt in that folder lies. Raises OSError."""
    run, number = os.path.split(run_dir)
    runs, name = os.path.split(run)
    return os.path.join(_folder(runs), f"{name}.{number}")


def _folder(runs: str) -> str:
    digest = sha256(os.fsencode(os.path.realpath(runs))).hexdigest()[:16]
    return os.path.join(host_lock_home(), "attempts", digest)


def read_record(run_dir: str) -> dict[str, Any] | None:
    """Return the record of an attempt, with `beat_ns`, if its supervisor or guardian lives."""
    try:
        return _live_record(record_path(run_dir))
    except OSError:
        return None  # this user has no folder for records


def take_abandoned(run_dir: str) -> dict[str, Any] | None:
    """Remove and return the record of an attempt whose guardian and supervisor were both killed;
    None if there is none."""
    try:
        path = record_path(run_dir)
        if held(path) is not False:
            return None
        record = _parsed(path)
        os.unlink(path)
    except OSError:
        return None
    return record


def abandoned_records() -> list[str]:
    """Return the records of all attempts, of any project, whose guardian and supervisor were both
    killed."""
    import glob

    try:
        paths = glob.glob(os.path.join(host_lock_home(), "attempts", "*", "*"))
    except OSError:
        return []  # there is no place for records that is ours
    return [path for path in paths if not path.endswith(".tmp") and held(path) is False]


def _unpublished() -> list[str]:
    """Return the files of records that never got their name, since who wrote them was killed."""
    import glob

    try:
        paths = glob.glob(os.path.join(host_lock_home(), "attempts", "*", "*.tmp"))
        oldest = time.time() - _ABANDONED
        return [path for path in paths if os.stat(path).st_mtime < oldest and held(path) is False]
    except OSError:
        return []  # another process deletes them now


def delete_useless_records() -> None:
    """Delete the abandoned records of attempts whose folder was deleted and that left no process:
    nobody will look for them."""
    records = {path: _parsed(path) or {} for path in abandoned_records()}
    tokens = {
        path: record.get("token", "")
        for path, record in records.items()
        if not os.path.exists(record.get("run_dir", ""))
    }
    carriers = carriers_by_cookie(frozenset(tokens.values())) if tokens else {}
    tokens |= dict.fromkeys(_unpublished(), "")
    for path, token in tokens.items():
        if token in carriers:
            continue
        try:
            os.unlink(path)
            os.rmdir(os.path.dirname(path))
        except OSError:
            continue  # somebody else has deleted it, or the folder has other records


def wait_until_over(run_dir: str) -> None:
    """Block until an attempt has ended, even if its folder was deleted. Raises OSError."""
    wait_until_free(record_path(run_dir))


def orphans(runs: str) -> list[dict[str, Any]]:
    """Return the records of attempts that still run, though their folder was deleted."""
    try:
        folder = _folder(runs)
        names = os.listdir(folder)
    except OSError:
        return []
    records = []
    for name in sorted(names):
        run, _, number = name.rpartition(".")
        if os.path.exists(os.path.join(runs, run, number, SUPERVISOR_LOCK)):
            continue
        record = _live_record(os.path.join(folder, name))
        if record is not None:
            records.append(record)
    return records


def _live_record(path: str) -> dict[str, Any] | None:
    return _parsed(path) if held(path) else None


def _parsed(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb", buffering=0, opener=regular_opener) as file:
            head, _, beat = file.read(1 << 16).partition(b"\n")
    except OSError:
        return None
    record = parse_object(head)
    if record is not None:
        record["beat_ns"] = int(beat) if beat.isdigit() else None
    return record
