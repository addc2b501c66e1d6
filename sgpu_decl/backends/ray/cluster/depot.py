"""The depot: a job on the head node that writes files there for clients, who reach the dashboard
alone.

    client ── PUT ─▶ key-value store ─▶ depot ─▶ folder of the head ◀── GET ── client

A message is a value of the store under `sgpu-depot-ID`: a line of JSON, and bytes. `do` is what to
do with `path`, which is relative to the folder:

    hello     nothing: the answer says that the depot lives
    put       write the bytes; the folder of the file must exist
    piece     keep the bytes as piece `number` of `upload`, at `offset`
    join      write the file that the `pieces` of `upload` are
    folder    make a folder and those above it
    delete    delete a file, or a folder with all in it
    gc        delete what nodes keep of the content that this folder does not have any more;
              `freed` of the answer says how many bytes

IDs and the names of uploads are hexadecimal digits and dashes. `sha256` is that of the bytes.
`sent` is when the client sent it, by the clock of the head: what is older than five minutes is not
done. A piece has none, since a slow line may take longer, and it changes nothing by itself. The
answer is a file, `.depot/answers/ID`: `now`, and `error` if it was refused. A message is deleted
once it was answered, so a depot that is killed is replaced by another one, which does it again. All
but one depot of a head end at once.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time

import ray
from ray.exceptions import RayError, RaySystemError, RpcError
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_list
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.system.locks import try_lock
from sgpu_decl.backends.ray.cluster import node_folder
from sgpu_decl.backends.ray.cluster.content_limit import MOST, prune
from sgpu_decl.backends.ray.cluster.head_folder import (
    head_folder,
    index_folder,
    index_tree,
    make_folder,
)
from sgpu_decl.backends.ray.cluster.head_names import ANSWERS, DEPOT, DEPOT_FILE, DEPOT_ID
from sgpu_decl.backends.ray.cluster.own_job import empty_folder, join_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KEYS = f"gcs://{DEPOT_ID}"
_NAME = re.compile(r"[0-9a-f][0-9a-f-]{0,99}")
_IDLE = 120.0  # seconds without a message, after which it ends
_OLD = 300.0  # seconds
_ABANDONED = 3600.0  # seconds without a piece, after which an upload will not be completed
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_MESSAGE = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip
_BUSY_PAUSE, _IDLE_PAUSE = 0.01, 0.2  # seconds between two looks
_TRIES = 5
_TURN = 60.0  # seconds between two looks for what is old, or too much
_NODES_ANSWER = 30.0  # seconds until all nodes must have answered

# Nodes have no copy of this package.
ray.cloudpickle.register_pickle_by_value(node_folder)


def main(folder: str) -> int:
    """Serve until no client has anything to do. `depot.json` in `folder` has the id of this `job`,
    and may have other limits than the usual ones: `idle`, in seconds, and `most`, in bytes of
    content."""
    with open(os.path.join(folder, DEPOT_FILE), encoding="utf-8") as file:
        about = json.load(file)
    empty_folder(folder)
    join_cluster()
    limits = {name: about[name] for name in ("idle", "most") if name in about}
    depot = _Depot(head_folder(), **limits)
    return depot.run(str(about["job"]))


class _Refused(Exception):
    """`code` is that of the error of the client."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class _Depot:
    def __init__(self, root: str, *, idle: float = _IDLE, most: int = MOST) -> None:
        self._root = root
        self._idle = idle
        self._most = most
        self._own = os.path.join(root, DEPOT)
        self._answers = os.path.join(root, ANSWERS)
        self._uploads = os.path.join(self._own, "uploads")
        for folder in (self._answers, self._uploads):
            os.makedirs(folder, exist_ok=True)

    def run(self, job: str) -> int:
        lock = os.open(os.path.join(self._own, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        if not try_lock(lock):
            attempt_files.say("another depot serves this head")
            return 0
        about = attempt_files.encode({"v": 1, "job": job})
        try:
            attempt_files.write_atomic(self._own, DEPOT_FILE, about)
        except OSError as error:  # clients start others, which end at once
            attempt_files.say(f"clients do not know this depot: {error}")
        worked, swept = time.monotonic(), float("-inf")
        while True:
            now = time.monotonic()
            done = self._turn()
            if done:
                worked = now
            elif now - worked > self._idle:
                self.sweep()
                return 0
            if now - swept > _TURN:
                swept = now
                self.sweep()
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
        if value is not None:
            self.answer(key.decode(errors="replace").removeprefix(_KEYS), value)
        _internal_kv_del(key)

    def answer(self, name: str, value: bytes) -> None:
        """Do what a message says, and write the answer, unless that was done."""
        if not _NAME.fullmatch(name) or os.path.exists(os.path.join(self._answers, name)):
            return
        answer: dict[str, Any] = {"v": 1}
        try:
            answer |= self._do(value)
        except _Refused as error:
            answer["error"] = {"code": error.code, "message": str(error)}
        except OSError as error:
            code = "no_room" if error.errno in _FULL else "remote_broken"
            answer["error"] = {"code": code, "message": error.strerror}
        except _NO_MESSAGE as error:
            answer["error"] = {"code": "remote_broken", "message": f"no such message: {error!r}"}
        answer["now"] = time.time()
        try:
            attempt_files.write_atomic(self._answers, name, attempt_files.encode(answer))
        except OSError as error:  # the client gives up by itself
            attempt_files.say(f"the answer to a client cannot be written: {error}")

    def _do(self, value: bytes) -> dict[str, Any]:
        """Do what a message says; return what the answer says of it."""
        end = value.find(b"\n")
        message, data = json.loads(value[:end]), memoryview(value)[end + 1 :]
        if "sent" in message and time.time() - message["sent"] > _OLD:
            raise _Refused("remote_broken", "the message is older than five minutes")
        if hashlib.sha256(data).hexdigest() != message["sha256"]:
            raise _Refused("remote_broken", "it came with another content than the one sent")
        do = message["do"]
        path = os.path.normpath(os.path.join(self._root, message.get("path", "")))
        if path != self._root and not path.startswith(self._root + os.sep):
            raise _Refused("remote_broken", "the path leads out of the folder")
        if path == self._own or path.startswith(self._own + os.sep):
            raise _Refused("remote_broken", "the path is that of the depot itself")
        if do == "put":
            self._put(path, data)
        elif do == "create":
            if os.path.lexists(path):
                return {"created": False}
            self._put(path, data)
            return {"created": True}
        elif do == "piece":
            self._keep(message, data)
        elif do == "join":
            self._join(message, path)
        elif do == "folder":
            make_folder(self._root, path)
        elif do == "delete":
            self._delete(path)
        elif do == "gc":
            return {"freed": free_nodes(os.path.join(self._root, "objects"))}
        elif do != "hello":
            raise _Refused("remote_broken", "it is a message of another version")
        return {}

    def _put(self, path: str, data: memoryview) -> None:
        folder = os.path.dirname(path)
        self._require(folder)
        partial = os.path.join(self._uploads, "put")
        try:
            with open(partial, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            _unlink(partial)
        index_folder(folder)

    def _keep(self, message: dict[str, Any], data: memoryview) -> None:
        partial = self._partial(message)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            at = int(message["offset"])
            while data:
                written = os.pwrite(descriptor, data, at)
                data, at = data[written:], at + written
        except OSError:
            self._drop(message["upload"])  # a full disk has room again, for the answer too
            raise
        finally:
            os.close(descriptor)
        with open(f"{partial}.{int(message['number'])}", "wb"):
            pass  # it is here, whole

    def _join(self, message: dict[str, Any], path: str) -> None:
        folder = os.path.dirname(path)
        self._require(folder)
        partial = self._partial(message)
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

    def _partial(self, message: dict[str, Any]) -> str:
        """The file of an upload."""
        if not _NAME.fullmatch(message["upload"]):
            raise _Refused("remote_broken", "an upload cannot have this name")
        return os.path.join(self._uploads, message["upload"])

    def _files_of(self, upload: str) -> list[str]:
        """The notes of the pieces of an upload, and the file of it last."""
        names = [name for name in os.listdir(self._uploads) if name.partition(".")[0] == upload]
        return [os.path.join(self._uploads, name) for name in sorted(names, reverse=True)]

    def _drop(self, upload: str) -> None:
        """Delete an upload. A note that outlived its piece would say that the piece is here."""
        for path in self._files_of(upload):
            _unlink(path)

    def _require(self, folder: str) -> None:
        if not os.path.isdir(folder):
            raise _Refused("remote_missing", f"there is no folder `{folder}`")

    def sweep(self) -> None:
        """Delete what clients left that were killed, and objects that are too much."""
        for answer in list(os.scandir(self._answers)):
            if time.time() - answer.stat().st_mtime > _OLD:
                _unlink(answer.path)
        for upload in {name.partition(".")[0] for name in os.listdir(self._uploads)}:
            # It is as old as its last piece, whatever is noted of earlier ones.
            if time.time() - max(map(os.path.getmtime, self._files_of(upload))) > _ABANDONED:
                self._drop(upload)
        objects = os.path.join(self._root, "objects")
        try:
            if os.path.isdir(objects):
                prune(objects, most=self._most)
                index_tree(objects)  # a depot that was killed may have deleted some, too
        except OSError as error:  # a client that needs room is told so in its answer
            attempt_files.say(f"old objects cannot be deleted, or not all: {error}")


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return


def free_nodes(objects: str) -> int:
    """Delete content on all nodes that are alive, but for what the folder `objects` of the head
    has; return the bytes. A node that does not answer keeps its content until a later gc."""
    kept = frozenset(
        os.path.relpath(os.path.join(place, name), objects)
        for place, _, names in os.walk(objects)
        for name in names
    )
    task = ray.remote(node_folder.delete_content)
    answers = [
        task.options(
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote(kept)
        for node in ray.nodes()
        if node["Alive"]
    ]
    ready, late = ray.wait(answers, num_returns=len(answers), timeout=_NODES_ANSWER)
    if late:
        attempt_files.say(f"{len(late)} nodes did not answer, and keep their content")
    size = 0
    for answer in ready:
        try:
            size += ray.get(answer)
        except RayError as error:
            attempt_files.say(f"a node keeps its content: {' '.join(str(error).split())[:500]}")
    return size
