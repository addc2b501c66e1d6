"""The nodes of one attempt while they run: their output, their deaths, and why they are stopped.

One thread waits for everything at once: the nodes' pipes, the deadline, and words from other
threads.
"""

import json
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sgpu_decl.testing.workspace.executing.endings import AttemptEnding
from sgpu_decl.testing.workspace.executing.logs import Log
from sgpu_decl.testing.workspace.executing.node import NodeProcess, NodeSpec

__all__ = ["Gang", "NodeDeath", "Result"]

_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDeath:
    """A node is to vanish once it has written that many lines."""

    node: int
    after_lines: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How the nodes ended; `exit_code` of the first that failed, negative for a signal."""

    ending: AttemptEnding
    message: str = ""
    exit_code: int | None = None


class Gang:
    """Runs all nodes until the last has ended. The first failure, of whatever kind, stops the
    others: SIGTERM, and after the grace SIGKILL; or SIGKILL alone where `asks` says no of it."""

    def __init__(
        self,
        specs: Sequence[NodeSpec],
        log: Log,
        *,
        grace: float,
        deaths: Sequence[NodeDeath] = (),
        asks: Callable[[AttemptEnding], bool] = lambda _: True,
    ) -> None:
        self._specs = specs
        self._log = log
        self._grace = grace
        self._deaths = list(deaths)
        self._asks = asks
        self._nodes: list[NodeProcess] = []
        self._running: set[int] = set()
        self._result: Result | None = None
        self._kill_at: float | None = None
        self._words: deque[tuple[str, int]] = deque()
        self._woken, self._wake = os.pipe()
        self._closed = False
        self._lock = threading.Lock()

    @property
    def keepers(self) -> list[int]:
        """The pids of the processes above each node."""
        return [node.keeper for node in self._nodes]

    def cancel(self) -> None:
        """Stop all nodes; from any thread."""
        self._tell("cancel")

    def kill(self) -> None:
        """Kill all nodes without a grace; from any thread."""
        self._tell("kill")

    def lose(self, node: int) -> None:
        """Let a node vanish; from any thread."""
        self._tell("lose", node)

    def run(self, deadline: float | None) -> Result:
        """Start the nodes, wait until all have ended, and say how. `deadline` is of
        `time.monotonic`."""
        with selectors.DefaultSelector() as selector:
            try:
                self._start(selector)
                while self._running or len(selector.get_map()) > 1:
                    self._step(selector, deadline)
            finally:
                with self._lock:
                    self._closed = True
                for node in self._nodes:
                    node.close()
                os.close(self._woken)
                os.close(self._wake)
        return self._result or Result(ending=AttemptEnding.SUCCEEDED)

    def _start(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._woken, selectors.EVENT_READ, ("word", -1))
        for number, spec in enumerate(self._specs):
            node = NodeProcess(spec)
            self._nodes.append(node)
            self._running.add(number)
            selector.register(node.output, selectors.EVENT_READ, ("output", number))
            selector.register(node.report, selectors.EVENT_READ, ("report", number))
        for death in [death for death in self._deaths if death.after_lines <= 0]:
            self._nodes[death.node].lose()

    def _step(self, selector: selectors.BaseSelector, deadline: float | None) -> None:
        moments = [at for at in (deadline, self._kill_at) if at is not None]
        left = max(0.0, min(moments) - time.monotonic()) if moments else None
        for key, _ in selector.select(left):
            if key.fd not in selector.get_map():
                continue  # drained with the report of a lost node, just before
            kind, number = key.data
            if kind == "word":
                self._listen()
            elif kind == "output":
                self._read_output(selector, number)
            else:
                self._read_report(selector, number)
        now = time.monotonic()
        if deadline is not None and now >= deadline and self._result is None:
            self._end(Result(ending=AttemptEnding.TIMED_OUT, message="Timed out"))
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._each(NodeProcess.kill)

    def _listen(self) -> None:
        os.read(self._woken, _BLOCK)
        while self._words:
            word, number = self._words.popleft()
            if word == "lose":
                self._nodes[number].lose()
                continue
            self._end(Result(ending=AttemptEnding.CANCELLED, message="Run cancelled."))
            if word == "kill":
                self._each(NodeProcess.kill)

    def _read_output(self, selector: selectors.BaseSelector, number: int) -> None:
        data = os.read(self._nodes[number].output, _BLOCK)
        if not data:
            selector.unregister(self._nodes[number].output)
            self._log.end(number)
            return
        lines = self._log.add(number, data)
        for death in [one for one in self._deaths if one.node == number]:
            if 0 < death.after_lines <= lines:
                self._deaths.remove(death)
                self._nodes[number].lose()

    def _read_report(self, selector: selectors.BaseSelector, number: int) -> None:
        data = os.read(self._nodes[number].report, _BLOCK)
        selector.unregister(self._nodes[number].report)
        self._running.discard(number)
        ended = _judged(number, json.loads(data) if data else None)
        if not data and self._nodes[number].output in selector.get_map():
            self._drain(selector, number)
        if ended is not None and self._result is None:
            self._end(ended)

    def _drain(self, selector: selectors.BaseSelector, number: int) -> None:
        """Read what a lost node had written; a keeper that was killed may have left processes that
        hold its output open, so the end is not waited for."""
        output = self._nodes[number].output
        os.set_blocking(output, False)
        with suppress(BlockingIOError):
            while data := os.read(output, _BLOCK):
                self._log.add(number, data)
        selector.unregister(output)
        self._log.end(number)

    def _end(self, result: Result) -> None:
        """What ends the attempt, unless something has before; whatever still runs is stopped."""
        if self._result is None:
            self._result = result
            if not self._asks(result.ending):
                self._each(NodeProcess.kill)
                return
            self._kill_at = time.monotonic() + self._grace
            self._each(NodeProcess.stop)

    def _each(self, act: Callable[[NodeProcess], None]) -> None:
        for number in self._running:
            act(self._nodes[number])

    def _tell(self, word: str, number: int = -1) -> None:
        with self._lock, suppress(BlockingIOError):
            self._words.append((word, number))
            if not self._closed:
                os.write(self._wake, b"!")


def _judged(number: int, report: dict[str, object] | None) -> Result | None:
    """What a node's report means for the attempt; None where it did well."""
    if report is None:
        return Result(ending=AttemptEnding.NODE_LOST, message=f"Node {number} was lost")
    if "error" in report:
        return Result(ending=AttemptEnding.PLATFORM, message=f"Node {number}: {report['error']}")
    status = int(str(report["status"]))
    if status == 0:
        return None
    how = f"exit code {status}" if status > 0 else f"signal {-status}"
    message = f"Workload failed on node {number} with {how}. See the logs for details."
    return Result(ending=AttemptEnding.FAILED, message=message, exit_code=status)
