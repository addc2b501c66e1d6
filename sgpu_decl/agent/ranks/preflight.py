"""A preflight: before ranks start, each device of a node is measured beside its peers.

There is a process for each device, in the environment of a rank: `preflight_program` is what it
does. All begin at once. A device that fails, or is much slower than others of its kind three times
in a row, keeps the ranks from starting: once may be the fault of another program. Nodes do not wait
for each other, and compare nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial

from sgpu_decl.agent.attempt.attempt_files import parse_object
from sgpu_decl.agent.ranks import preflight_program
from sgpu_decl.agent.ranks.rank_start import LaunchError, exec_error, rank_environment, spawn
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.fast_stdlib import signal, signal_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.several_nodes.node_group import Node
    from sgpu_decl.agent.system.loop import Loop
    from sgpu_decl.agent.system.process_tree import ProcessTree

WAITING = "preflight"
_TRIES = 3
_LONGEST_LOG = 4_000  # characters


class Preflight:
    """For the node whose records are in `folder`. Calls `then`, or `on_refused(error)`, once no
    process is left."""

    on_refused: Callable[[LaunchError], None]

    def __init__(
        self,
        spec: Mapping[str, Any],
        folder: str,
        node: Node,
        loop: Loop,
        record: AttemptRecord,
        tree: ProcessTree,
    ) -> None:
        self._spec = spec
        self._folder = os.path.join(folder, "preflight")
        self._node = node
        self._loop = loop
        self._record = record
        self._tree = tree
        self._slots: list[_Slot] = []
        self.begun = False
        self._tries = 0

    def begin(
        self,
        restart: int,
        devices: Sequence[str],
        inherited: Mapping[str, str],
        then: Callable[[], None],
    ) -> None:
        """Start it."""
        self.begun = True
        self._then = then
        self._forgotten = False
        self._error: LaunchError | None = None
        self._here = os.path.join(self._folder, str(restart))
        self._record.update(waiting_for=WAITING)
        self._tries = 0
        self._try = partial(self._measure, restart, devices, inherited)
        self._try()

    def _measure(self, restart: int, devices: Sequence[str], inherited: Mapping[str, str]) -> None:
        self._tries += 1
        count = self._node.local_world_size(self._spec)
        self._slots = [_Slot(number) for number in range(count)]
        try:
            os.makedirs(self._here, mode=0o700, exist_ok=True)
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self._here, preflight_program.STORE))
            for slot in self._slots:
                self._start(slot, restart, devices, inherited)
        except LaunchError as error:
            self._give_up(error)
        except OSError as error:
            self._give_up(LaunchError("launch_failed", f"cannot start the preflight: {error}"))
        else:
            self._loop.after("preflight", self._spec["preflight"]["patience"], self._too_late)

    def _start(
        self, slot: _Slot, restart: int, devices: Sequence[str], inherited: Mapping[str, str]
    ) -> None:
        environment = rank_environment(
            self._spec, inherited=inherited, secrets={}, restart=restart, node=self._node, port=0,
            rank=self._node.number * len(self._slots) + slot.number, devices=devices,
        )  # fmt: skip
        environment["LOCAL_RANK"] = str(slot.number)
        # Only processes of this node meet.
        environment |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
        answers, answering = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        waiting, slot.go = os.pipe2(os.O_CLOEXEC)
        seconds = self._spec["preflight"]["seconds"]
        argv = [self._spec["python"], "-c", _source(), str(slot.number), str(len(self._slots)),
                str(seconds), self._here, str(answering)]  # fmt: skip
        slot.log = os.path.join(self._here, f"{slot.number}.log")
        try:
            slot.pid, failure = spawn(
                argv, environment, cwd=self._here, logs=(slot.log, slot.log),
                reset=self._loop.close, stdin=waiting, keep=answering,
            )  # fmt: skip
        except LaunchError:
            os.close(answers)
            slot.let_go()
            raise
        finally:
            os.close(answering)
            os.close(waiting)
        pid, slot.answers, slot.living = slot.pid, answers, True
        self._tree.start(pid)
        self._record.event("preflight_started", slot=slot.number, pid=pid)
        self._loop.read(answers, lambda: self._hear(slot))
        self._loop.watch(pid, lambda status, _: self._ended(slot, status))
        if (error := exec_error(failure, argv[0], self._here)) is not None:
            raise error

    def _hear(self, slot: _Slot) -> None:
        if not slot.read():
            self._loop.forget(slot.answers)
            slot.answers = -1
        if slot.go >= 0 and all("ready" in one.found for one in self._slots):
            for one in self._slots:
                one.let_go()
            limits = self._spec["preflight"]
            patience = limits["seconds"] + limits["patience"] / 4
            self._loop.after("preflight", patience, self._too_late)

    def _ended(self, slot: _Slot, status: int) -> None:
        self._tree.end(slot.pid)
        if slot.answers >= 0:
            slot.read()
            self._loop.forget(slot.answers)
        slot.end(os.waitstatus_to_exitcode(status))
        if slot.speed == 0 and not slot.killed:
            why = f"{slot.words(self._node.number)} failed in the preflight: {slot.why()}"
            self._give_up(LaunchError("launch_failed", why, slot.end_of_log()))
        elif not self._living:
            self._conclude()

    @property
    def _living(self) -> list[_Slot]:
        return [slot for slot in self._slots if slot.living]

    def _too_late(self) -> None:
        first, *others = self._living
        also = f" (and {len(others)} more)" if others else ""
        doing = f"in its {first.stage}" if first.stage else "before it measured anything"
        why = (
            f"the preflight did not end in time: {first.words(self._node.number)}{also} is {doing}"
        )
        self._give_up(LaunchError("launch_failed", why, first.end_of_log()))

    def _give_up(self, error: LaunchError) -> None:
        """Kill what is there; the first error counts."""
        self._error = self._error or error
        self._kill()
        if not self._living:
            self._conclude()

    def _kill(self) -> None:
        self._loop.cancel("preflight")
        for slot in self._living:
            slot.killed = True
            processes.send_signal(slot.pid, processes.start_time(slot.pid), signal.SIGKILL)

    def forget(self) -> None:
        """Somebody stops the attempt: kill what is there, and call nobody."""
        self._forgotten = True
        self._kill()

    def _conclude(self) -> None:
        self._loop.cancel("preflight")
        slow = None if self._error or self._forgotten else self._too_slow()
        if slow is not None and self._tries < _TRIES:
            self._try()
            return
        self._record.update(waiting_for=None)
        if self._forgotten:
            return
        figures = [slot.figures for slot in self._slots]
        self._record.update(preflight=figures)
        self._record.event("preflight", devices=figures)
        error = self._error or slow
        if error is None:
            self._then()
        else:
            self.on_refused(error)

    def _too_slow(self) -> LaunchError | None:
        speeds = {slot.number: (slot.name, slot.speed) for slot in self._slots}
        slow = slow_devices(speeds, self._spec["preflight"]["least"])
        said = [
            f"{self._slots[number].words(self._node.number)} multiplies at {100 * share:.0f} % of "
            "the others"
            for number, share in slow.items()
        ]
        return LaunchError("launch_failed", "; ".join(said)) if said else None


def slow_devices(speeds: Mapping[int, tuple[object, float]], least: float) -> dict[int, float]:
    """Which devices are too slow, by their numbers, and at which share of the median of the others
    of the same name. `speeds` has the name and the speed of each."""
    slow = {}
    for number, (name, speed) in speeds.items():
        others = sorted(
            other for key, (called, other) in speeds.items() if key != number and called == name
        )
        if not others:
            continue
        middle = len(others) // 2
        median = others[middle] if len(others) % 2 else (others[middle - 1] + others[middle]) / 2
        if speed < least * median:
            slow[number] = speed / median
    return slow


class _Slot:
    """One process. `found` is what it has said."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = self.answers = self.go = -1
        self.living = self.killed = False
        self.code = 0
        self.log = ""
        self.found: dict[str, Any] = {}
        self._text = b""

    def read(self) -> bool:
        """Take what it says; return whether more may come."""
        try:
            data = os.read(self.answers, 65_536)
        except BlockingIOError:
            return True
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            self.found |= parse_object(line) or {}
        return bool(data)

    def let_go(self) -> None:
        """Let it measure."""
        if self.go >= 0:
            with suppress(BrokenPipeError):
                os.write(self.go, b"g")
            os.close(self.go)
        self.go = -1

    def end(self, code: int) -> None:
        """It has ended."""
        self.code, self.living, self.answers = code, False, -1
        self.let_go()

    @property
    def speed(self) -> float:
        """In GFLOP/s; 0 if it failed."""
        speed = self.found.get("multiply")
        ended_well = self.code == 0 and not self.living
        return float(speed) if ended_well and isinstance(speed, int | float) else 0.0

    @property
    def stage(self) -> str:
        return str(self.found.get("stage") or "")

    @property
    def name(self) -> str | None:
        name = self.found.get("name")
        return None if name is None else str(name)

    @property
    def figures(self) -> dict[str, Any]:
        """What the outcome says of it."""
        return {
            "device": self.number,
            "name": self.name,
            "uuid": self.found.get("uuid"),
            "gflops": self.found.get("multiply"),
            "all_reduce_gb_per_s": self.found.get("all_reduce"),
        }

    def words(self, node: int) -> str:
        """`gpu 3 of node 1 (NVIDIA H100 80GB HBM3, GPU-7c…)`."""
        if self.name is None:
            return f"processor {self.number} of node {node}"
        uuid = self.found.get("uuid")
        return f"gpu {self.number} of node {node} ({self.name}{f', {uuid}' if uuid else ''})"

    def why(self) -> str:
        """Why it has no figure."""
        if "error" in self.found:
            return str(self.found["error"])
        if self.code < 0:
            return f"it was ended by {signal_name(-self.code)}"
        return f"it exited with {self.code}"

    def end_of_log(self) -> str | None:
        try:
            with open(self.log, "rb") as file:
                return file.read()[-_LONGEST_LOG:].decode("utf-8", "replace") or None
        except OSError:
            return None


def _source() -> str:
    loader: Any = preflight_program.__loader__  # of a folder, or of an archive
    return str(loader.get_source(preflight_program.__name__))
