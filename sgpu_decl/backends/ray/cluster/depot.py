"""The depot: a job on the head node that writes files there for clients, who reach the dashboard
alone.

    client ── PUT ─▶ key-value store ─▶ depot ─▶ folder of the head ◀── GET ── client

A message is a value of the store under `sgpu-depot-ID`: a line of JSON, and bytes. `do` is what to
do with `path`, which is relative to the folder:

    hello     nothing: the answer says that the depot lives, and where the folder is
    put       write the bytes; the folder of the file must exist
    piece     keep the bytes as piece `number` of `upload`, at `offset`
    join      write the file that the `pieces` of `upload` are
    folder    make a folder and those above it
    delete    delete a file, or a folder with all in it

`sha256` is that of the bytes. `sent` is when the client sent it, by the clock of the head: what is
older than five minutes is not done. The answer is a file, `.depot/answers/ID`: `root`, `now`, and
`error` if it was refused. A message is deleted once it was answered, so a depot that is killed is
replaced by another one, which does it again. All but one depot of a head end at once.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time

import ray
from ray._private import worker
from ray.exceptions import RaySystemError, RpcError
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_list

from sgpu_decl.agent import attempt_files
from sgpu_decl.agent.locks import try_lock
from sgpu_decl.backends.ray.cluster.content_limit import prune
from sgpu_decl.backends.ray.cluster.head_folder import OWN, index_folder, index_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["main"]

_KEYS = "gcs://sgpu-depot-"
_IDLE = 120.0  # seconds without a message, after which it ends
_OLD = 300.0  # seconds
_BUSY_PAUSE, _IDLE_PAUSE = 0.01, 0.2  # seconds between two looks
_TRIES = 5
_TURN = 60.0  # seconds between two looks for what is old, or too much


def main(folder: str) -> int:
    """Serve until no client has anything to do. `depot.json` in `folder` has the id of this job."""
    with open(os.path.join(folder, "depot.json"), encoding="utf-8") as file:
        job = str(json.load(file)["job"])
    os.chdir("/")
    ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False)
    session = worker.global_worker.node.get_session_dir_path()
    depot = _Depot(os.path.join(session, "logs", "sgpu"))
    shutil.rmtree(folder, ignore_errors=True)
    return depot.run(job)


class _Refused(Exception):
    """`code` is that of the error of the client."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class _Depot:
    def __init__(self, root: str) -> None:
        self._root = root
        self._own = os.path.join(root, OWN)
        self._answers = os.path.join(self._own, "answers")
        self._uploads = os.path.join(self._own, "uploads")

    def run(self, job: str) -> int:
        for folder in (self._answers, self._uploads):
            os.makedirs(folder, exist_ok=True)
        lock = os.open(os.path.join(self._own, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        if not try_lock(lock):
            attempt_files.say("another depot serves this head")
            return 0
        about = attempt_files.encode({"v": 1, "job": job})
        attempt_files.write_atomic(self._own, "depot.json", about)
        index_tree(self._root)  # the last depot may have been killed before it had
        worked = swept = time.monotonic()
        while True:
            now = time.monotonic()
            done = self._turn()
            if done:
                worked = now
            elif now - worked > _IDLE:
                return 0
            if now - swept > _TURN:
                swept = now
                self._sweep()
            if not done:
                time.sleep(_BUSY_PAUSE if now - worked < 5.0 else _IDLE_PAUSE)

    def _turn(self) -> int:
        """Do what clients left; return how many messages that were."""
        try:
            keys = sorted(_internal_kv_list(_KEYS))
            for key in keys:
                self._message(key)
        except (RaySystemError, RpcError):
            return 0  # the store does not answer now
        return len(keys)

    def _message(self, key: bytes) -> None:
        value = _internal_kv_get(key)
        name = key.decode().removeprefix(_KEYS)
        if value is not None and not os.path.exists(os.path.join(self._answers, name)):
            answer: dict[str, Any] = {"v": 1, "root": self._root}
            try:
                self._do(value)
            except _Refused as error:
                answer["error"] = {"code": error.code, "message": str(error)}
            except OSError as error:
                code = "no_room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "remote_broken"
                answer["error"] = {"code": code, "message": error.strerror}
            answer["now"] = time.time()
            attempt_files.write_atomic(self._answers, name, attempt_files.encode(answer))
        _internal_kv_del(key)

    def _do(self, value: bytes) -> None:
        line, _, data = value.partition(b"\n")
        message = json.loads(line)
        if "sent" in message and time.time() - message["sent"] > _OLD:
            raise _Refused("remote_broken", "the message is older than five minutes")
        if "sha256" in message and hashlib.sha256(data).hexdigest() != message["sha256"]:
            raise _Refused("remote_broken", "it came with another content than the one sent")
        do = message["do"]
        path = os.path.normpath(os.path.join(self._root, message.get("path", "")))
        if path != self._root and not path.startswith(self._root + os.sep):
            raise _Refused("remote_broken", "the path leads out of the folder")
        if do == "put":
            self._put(path, data)
        elif do == "piece":
            self._keep(message, data)
        elif do == "join":
            self._join(message, path)
        elif do == "folder":
            self._make(path)
        elif do == "delete":
            self._delete(path)

    def _put(self, path: str, data: bytes) -> None:
        folder = os.path.dirname(path)
        self._require(folder)
        partial = os.path.join(self._uploads, "put")
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        index_folder(folder)

    def _keep(self, message: dict[str, Any], data: bytes) -> None:
        partial = os.path.join(self._uploads, message["upload"])
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            rest, at = memoryview(data), int(message["offset"])
            while rest:
                written = os.pwrite(descriptor, rest, at)
                rest, at = rest[written:], at + written
        finally:
            os.close(descriptor)
        with open(f"{partial}.{message['number']}", "wb"):
            pass  # it is here, whole

    def _join(self, message: dict[str, Any], path: str) -> None:
        folder = os.path.dirname(path)
        self._require(folder)
        partial = os.path.join(self._uploads, message["upload"])
        marks = [f"{partial}.{number}" for number in range(message["pieces"])]
        if os.path.exists(partial):
            if not all(map(os.path.exists, marks)):
                raise _Refused("remote_broken", "a piece of it is missing")
            descriptor = os.open(partial, os.O_RDONLY | os.O_CLOEXEC)
            os.fsync(descriptor)
            os.close(descriptor)
            os.replace(partial, path)
        elif not os.path.exists(path):  # else a depot that was killed did it
            raise _Refused("remote_broken", "its pieces are gone")
        for mark in marks:
            _unlink(mark)
        index_folder(folder)

    def _make(self, path: str) -> None:
        above = path
        while above != self._root and not os.path.isdir(above):
            above = os.path.dirname(above)
        os.makedirs(path, exist_ok=True)
        while path != above:
            index_folder(path)
            path = os.path.dirname(path)
        index_folder(above)

    def _delete(self, path: str) -> None:
        if path == self._root:
            return
        if os.path.isdir(path) and not os.path.islink(path):
            for _ in range(_TRIES):  # the driver may still write into it
                shutil.rmtree(path, ignore_errors=True)
            if os.path.isdir(path):
                shutil.rmtree(path)
        else:
            _unlink(path)
        if os.path.isdir(os.path.dirname(path)):
            index_folder(os.path.dirname(path))

    def _require(self, folder: str) -> None:
        if not os.path.isdir(folder):
            raise _Refused("remote_missing", f"there is no folder `{folder}`")

    def _sweep(self) -> None:
        """Delete what clients left that were killed, and objects that are too much."""
        for folder in (self._answers, self._uploads):
            for item in list(os.scandir(folder)):
                if time.time() - item.stat().st_mtime > _OLD:
                    _unlink(item.path)
        objects = os.path.join(self._root, "objects")
        if os.path.isdir(objects) and prune(objects):
            index_tree(objects)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return
