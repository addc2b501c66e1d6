"""The two processes that make a tree, run by the environment's own interpreter.

They are processes because Python threads would share one core. A worker takes a batch of work as a
line of JSON, and answers with the names of the items that failed:

    ["link", [[key, size, [path], [script], ns]]]    [key]
    ["compile", [path]]                          []
    ["unpack", [path, contents, …]]              ["why the pack is refused"]
"""

from __future__ import annotations

import errno
import gc
import json
import os
import subprocess
import sys
import threading

from sgpu_decl import agent as agent_room
from sgpu_decl.content.manifest import Python
from sgpu_decl.content.python_match import base_executable, this_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, BinaryIO, TypeVar

    Batch = TypeVar("Batch")
    Item = TypeVar("Item")

_WORKERS = 2
_BATCH_BYTES = 16 << 20


class WorkerError(OSError):
    """A worker could not be started, failed, or ended."""


def batches(
    items: Sequence[Item], size: Callable[[Item], int], *, large: int, most: int
) -> Iterator[list[Item]]:
    """Cut work into batches.

    Args:
        size: gives the bytes of an item.
        large: items of so many bytes come first and alone, so that no worker has one left when the
            others are done.
        most: the items in one batch.
    """
    for item in sorted(items, key=size, reverse=True):
        if size(item) < large:
            break
        yield [item]
    batch: list[Item] = []
    total = 0
    for item in items:
        if size(item) < large:
            batch.append(item)
            total += size(item)
            if len(batch) >= most or total >= _BATCH_BYTES:
                yield batch
                batch, total = [], 0
    if batch:
        yield batch


class WorkerPool:
    """The workers, and facts about their interpreter: `base` is its path, `tag` the tag of its
    bytecode."""

    def __init__(self, python: str) -> None:
        """Start them with the interpreter `python`.

        Raises:
            WorkerError: the interpreter does not exist or does not start.
        """
        self._workers: list[_Worker] = []
        try:
            for _ in range(_WORKERS):
                self._workers.append(_Worker(python))
            for worker in self._workers:
                facts, self.base, self.tag = worker.answer()
        except BaseException:
            self.close()
            raise
        self.python = Python(*facts)

    def begin(self, **setup: str) -> None:
        """Send all workers their folders."""
        for worker in self._workers:
            worker.tell(["begin", setup])
            worker.answer()

    def work(
        self,
        kind: str,
        batches: Iterable[Batch],
        done: Callable[[Batch, list[str]], None] = lambda _batch, _failed: None,
    ) -> None:
        """Do all batches, and call `done(batch, answer)` after each, one at a time.

        Raises:
            WorkerError: an error of the system in a worker, or a worker ended.
        """
        waiting = iter(batches)
        lock = threading.Lock()
        errors: list[BaseException] = []

        def serve(worker: _Worker) -> None:
            try:
                while True:
                    with lock:
                        if errors:
                            return
                        batch = next(waiting)
                    worker.tell([kind, batch])
                    answer = worker.answer()
                    with lock:
                        done(batch, answer)
            except StopIteration:
                return
            except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
                errors.append(error)

        threads = [threading.Thread(target=serve, args=[worker]) for worker in self._workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Kill the workers."""
        for worker in self._workers:
            worker.kill()


class _Worker:
    def __init__(self, python: str) -> None:
        agent = os.path.abspath(agent_room.__path__[0])  # a zip, or a folder
        if os.path.isdir(agent):
            agent = os.path.join(agent, "__main__.py")
        self._python = python
        try:
            self._process = subprocess.Popen(
                [python, "-I", "-S", "-X", "utf8", agent, "hydrate-worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
            )
        except OSError as error:
            raise WorkerError(error.errno, error.strerror, python) from error

    def tell(self, message: object) -> None:
        stream = self._process.stdin
        try:
            stream.write(json.dumps(message).encode("ascii") + b"\n")  # type: ignore[union-attr]
            stream.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            pass  # it ended; `answer` reports that

    def answer(self) -> list[Any]:
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            code = self._process.wait()
            raise WorkerError(f"a process of `{self._python}` ended with {code}")
        answer: Any = json.loads(line)
        if isinstance(answer, dict):
            raise WorkerError(*answer["error"])
        return list(answer)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def main(arguments: Sequence[str]) -> int:  # noqa: ARG001 - as all programs of the agent
    """Run a worker until its standard input ends."""
    gc.disable()  # nothing here makes cycles
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # only answers go to the pipe
    _say(answers, [this_python(), base_executable(), sys.implementation.cache_tag or ""])
    handlers: dict[str, Callable[[Any], list[str]]] = {"unpack": _unpack}
    for line in sys.stdin.buffer:
        kind, batch = json.loads(line)
        answer: object = []
        try:
            if kind == "begin":
                handlers.update(_prepared(**batch))
            else:
                answer = handlers[kind](batch)
        except OSError as error:
            path = os.fsdecode(error.filename) if error.filename else None
            answer = {"error": [error.errno or errno.EIO, error.strerror or str(error), path]}
        _say(answers, answer)
    return 0


def _unpack(batch: Any) -> list[str]:
    from sgpu_decl.content.pack_reader import unpack_task

    return unpack_task(batch)


def _prepared(
    *, folder: str, objects: str, interpreter: str
) -> dict[str, Callable[[Any], list[str]]]:
    from sgpu_decl.content.tree_links import (
        Linker,
        compile_files,
        finish_folders,
        make_folders,
    )

    os.chdir(folder)
    return {
        "folders": make_folders,
        "link": Linker(objects, interpreter).link,
        "compile": compile_files,
        "finish": finish_folders,
    }


def _say(answers: BinaryIO, message: object) -> None:
    try:
        answers.write(json.dumps(message).encode("ascii") + b"\n")
        answers.flush()
    except BrokenPipeError:  # the process that started it has ended
        os._exit(1)
