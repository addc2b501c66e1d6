"""The process of one launch of a job: it starts tasks once those before them have ended.

    sgpu start ─▶ starter (leaves at once) ─▶ walker (walker.lock) ─▶ the agent of each task

Stdin has the launch, the secrets of its tasks and the environment of ranks, as one JSON object. The
walker inherits the lock of the job, and holds it until it has made the folder of the launch:

    <job>/launches/<n>/launch.json   what was asked for, and what has become of it
    <job>/launches/<n>/walker.lock   held as long as the walker lives
    <job>/launches/<n>/cancel        somebody asks the launch to stop; SIGWINCH makes it look

If it dies, tasks that it has started go on, and no further one starts. It uses the standard library
and the agent only.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from shutil import rmtree
from threading import Thread

from sgpu_decl.agent.attempt.attempt_files import (
    GUARDIAN_LOCK,
    OUTCOME,
    SUPERVISOR_LOCK,
    encode,
    parse_object,
    read_json,
    stamp,
    write_atomic,
)
from sgpu_decl.agent.attempt.attempt_status import read_attempt, request_cancel
from sgpu_decl.agent.attempt.host_record import wait_until_over
from sgpu_decl.agent.launching.agent_launch import launch
from sgpu_decl.agent.system.fast_stdlib import signal
from sgpu_decl.agent.system.locks import create_held, held, open_lock, try_lock, wait_until_free
from sgpu_decl.agent.system.processes import start_time
from sgpu_decl.backends.local.jobs.run_if import TaskEnd, hindrance, succeeded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LAUNCHES, LAUNCH, WALKER_LOCK, CANCEL = "launches", "launch.json", "walker.lock", "cancel"
QUEUED, RUNNING, CANCELLED, FAILED = "queued", "running", "cancelled", "failed"
_ENDS = {"succeeded": TaskEnd.SUCCEEDED}
_BUSY = "another launch is active, and the job has no `on_overlap: queue`"
_LOOK = 0.2  # seconds between two looks for room among the launches of a job


def main(arguments: list[str]) -> None:
    """Be the walker of a launch of the job whose folder is the first argument, and whose lock is
    the descriptor in the second one. Stdout gets `ok` once the launch is there, or why it is
    not."""
    if os.fork():
        os._exit(0)  # the command waits for this process only
    answer = os.dup(1)
    message = parse_object(sys.stdin.buffer.read())
    if message is None:  # the command died
        os._exit(1)
    os.environ.update(message["environ"])
    try:
        walk = LaunchWalk(arguments[0], message["launch"], message["secrets"])
    except OSError as error:
        os.write(answer, str(error).encode())
        os._exit(1)
    os.close(int(arguments[1]))
    os.write(answer, b"ok")
    os.close(answer)
    walk.run()


class LaunchWalk:
    """A launch while it goes on. Its folder is made here: from then on there is the launch."""

    def __init__(
        self, job: str, launch: dict[str, Any], secrets: dict[str, dict[str, str]]
    ) -> None:
        self._job = job
        self._launch = launch
        self._secrets = secrets
        self._events: SimpleQueue[str | None] = SimpleQueue()
        self._folder = os.path.join(job, LAUNCHES, str(launch["number"]))
        self._tasks: dict[str, dict[str, Any]] = launch["tasks"]
        self._ends: dict[str, TaskEnd] = {}
        self._running: set[str] = set()
        self._stopping: str | None = None
        signal.signal(signal.SIGWINCH, lambda *_: self._events.put(None))
        os.makedirs(self._folder, mode=0o700)
        self._lock = create_held(os.path.join(self._folder, WALKER_LOCK))
        log = os.open(os.path.join(self._folder, "walker.log"), os.O_WRONLY | os.O_CREAT, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for descriptor, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, target)
        launch |= {"pid": os.getpid(), "start_time": start_time(os.getpid()), "state": QUEUED}
        launch["created_at"] = stamp()
        for task in self._tasks.values():
            task["state"] = QUEUED
        self._write(durable=True)

    def run(self) -> None:
        """Start all tasks in their order, and wait for them."""
        if self._admitted():
            self._launch |= {"state": RUNNING, "started_at": stamp()}
            self._write()
            timeout = self._launch["timeout"]
            self._walk(None if timeout is None else time.monotonic() + timeout)
        for name in self._tasks.keys() - self._ends.keys():
            self._skip(name, TaskEnd.FAILED)
        after = {name: task["after"] for name, task in self._tasks.items()}
        state = self._stopping or ("succeeded" if succeeded(self._ends, after) else FAILED)
        self._launch |= {"state": state, "ended_at": stamp()}
        self._write(durable=True)
        for task in self._tasks.values():  # what nobody starts any more
            if task.get("skipped"):
                rmtree(os.path.join(self._job, task["folder"]), ignore_errors=True)

    def _admitted(self) -> bool:
        """Wait until there is room among the launches of the job; False if this one is not to run.
        Launches begin in the order of their numbers."""
        while not self._asked_to_stop():
            if not any(map(self._waits, range(1, self._launch["number"]))) and self._takes_slot():
                return True
            if not self._launch["queue"]:
                self._stop(FAILED, _BUSY)
                return False
            with suppress(Empty):
                self._events.get(timeout=_LOOK)
        self._stop(CANCELLED, None)
        return False

    def _waits(self, number: int) -> bool:
        folder = os.path.join(self._job, LAUNCHES, str(number))
        if not held(os.path.join(folder, WALKER_LOCK)):
            return False
        return (read_json(folder, LAUNCH) or {}).get("state") == QUEUED

    def _takes_slot(self) -> bool:
        for number in range(self._launch["most"]):
            slot = open_lock(os.path.join(self._job, f"slot-{number}"))
            if try_lock(slot):
                return True  # until this process ends
            os.close(slot)
        return False

    def _walk(self, deadline: float | None) -> None:
        while True:
            if self._asked_to_stop():
                self._stop(CANCELLED, None)
            elif deadline is not None and time.monotonic() >= deadline:
                self._stop(FAILED, "the launch took longer than its `timeout`")
            while self._stopping is None and any(map(self._goes_on, self._tasks)):
                pass
            if not self._running:
                return
            left = None
            if deadline is not None and self._stopping is None:
                left = max(0.0, deadline - time.monotonic())
            with suppress(Empty):
                if (name := self._events.get(timeout=left)) is not None:
                    self._ended(name)

    def _goes_on(self, name: str) -> bool:
        """Start a task, or pass it over, if those before it have ended. False if nothing is to be
        done."""
        task = self._tasks[name]
        if task["state"] != QUEUED or not all(one in self._ends for one in task["after"]):
            return False
        hindered = hindrance(task["if"], [self._ends[one] for one in task["after"]])
        if hindered is not None:
            self._skip(name, hindered)
            return True
        folder = os.path.join(self._job, task["folder"])
        task |= {"state": RUNNING, "started_at": stamp()}
        self._write()
        try:
            launch(Path(folder), secrets=self._secrets.get(name, {}), token=task["token"])
        except OSError as error:
            task |= {"state": FAILED, "ended_at": stamp(), "message": str(error.strerror or error)}
            self._ends[name] = TaskEnd.FAILED
            self._write()
            return True
        self._running.add(name)
        Thread(target=self._await, args=(name, folder), daemon=True).start()
        return True

    def _await(self, name: str, folder: str) -> None:
        """Block until an attempt has ended."""
        try:
            wait_until_free(os.path.join(folder, SUPERVISOR_LOCK))
            if not os.path.exists(os.path.join(folder, OUTCOME)):
                wait_until_free(os.path.join(folder, GUARDIAN_LOCK))
                wait_until_over(folder)
        finally:  # if this user may not look any more, the launch goes on all the same
            self._events.put(name)

    def _ended(self, name: str) -> None:
        state = str(read_attempt(os.path.join(self._job, self._tasks[name]["folder"]))["state"])
        self._running.remove(name)
        self._ends[name] = _ENDS.get(state, TaskEnd.FAILED)
        self._tasks[name] |= {"state": state, "ended_at": stamp()}
        self._write()

    def _skip(self, name: str, end: TaskEnd) -> None:
        self._ends[name] = end
        self._tasks[name] |= {"state": CANCELLED, "skipped": True}
        self._write()

    def _asked_to_stop(self) -> bool:
        return os.path.exists(os.path.join(self._folder, CANCEL))

    def _stop(self, state: str, message: str | None) -> None:
        """End the launch with that state: stop what runs, and start nothing more."""
        if self._stopping is not None:
            return
        self._stopping = state
        for name, task in self._tasks.items():
            if name not in self._ends and message is not None:
                task["message"] = message
            if name in self._running:
                with suppress(OSError):  # its folder is gone, and so is it
                    request_cancel(os.path.join(self._job, task["folder"]))

    def _write(self, *, durable: bool = False) -> None:
        write_atomic(self._folder, LAUNCH, encode(self._launch), durable=durable)
