"""Looks whether ranks wait for one another, in a thread of the monitor.

The ranks of a node are asked a few times in each `hang_after`; for their collectives only if they
stand still. The monitor of node 0 compares all ranks: those of the other nodes are sent to it.
"""

from __future__ import annotations

import threading
import time

from sgpu_decl.agent.monitor.collective_waits import CollectiveWait, RankLook, collective_wait
from sgpu_decl.agent.monitor.rank_answers import ask_ranks, checked_answer
from sgpu_decl.agent.ranks.rank_stacks import stack_of_rank
from sgpu_decl.agent.ranks.rank_start import rank_address
from sgpu_decl.agent.system.processes import stat_fields, wakeups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sgpu_decl.agent.monitor.rank_answers import RankAnswer

_LOOKS = 6  # in one hang_after
_SOONEST, _LATEST = 0.25, 10.0  # seconds between two looks
_LATELY = 3  # looks in which a rank may fail to answer: the machine may be busy
_GAPS = 5  # `auto` waits so many times the longest gap seen between two collectives,
_LEAST = 30.0  # but never less than so many seconds
_BUSY = 20  # thousandths of a core: threads that only wait still wake up at times
_AWAKE = 20  # times a second that the main thread wakes up, for what a network brings, say

_pause = time.sleep


class _Rank:
    """A rank of this node, from one look to the next."""

    def __init__(self, pid: int, began: float) -> None:
        self.pid = pid
        self.answer: RankAnswer | None = None
        self.silent = 0  # looks since its last answer
        self.stood_since = self.idle_since = began
        self.asked_by_signal = False
        self.lives = True
        self._woken: tuple[float, int] | None = None

    def wakes(self, now: float) -> bool:
        """Whether the main thread has woken up often since the last look."""
        before, self._woken = self._woken, (now, wakeups(self.pid))
        return before is not None and self._woken[1] - before[1] > _AWAKE * (now - before[0])

    def take(self, answer: RankAnswer | None, now: float) -> float:
        """Note an answer; return how long the rank had stood, if it goes on now."""
        if answer is None:
            self.silent += 1
            return 0.0
        before, self.answer, self.silent = self.answer, answer, 0
        self.asked_by_signal = False
        if before is None or before.stack != answer.stack:
            self.idle_since = now
        if before is not None and before.marks == answer.marks:
            if answer.groups is None and before.stack == answer.stack:
                answer.groups = before.groups
            return 0.0
        gap, self.stood_since = now - self.stood_since, now
        return gap if before is not None else 0.0


class HangWatch:
    """Of the ranks of one node.

    Args:
        living: their processes.
        send: takes a message for the supervisor: `{"looks"}` of a node that is not the first,
            `{"wait", "ends"}` otherwise.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        *,
        node: int,
        restart: int,
        living: Mapping[int, int],
        send: Callable[[dict[str, Any]], None],
    ) -> None:
        self._spec = spec
        self._node = node
        self._restart = restart
        self._send = send
        began = self._measured = time.monotonic()
        self._ranks = {rank: _Rank(pid, began) for rank, pid in living.items()}
        self._addresses = {rank: rank_address(spec["token"], rank, restart) for rank in living}
        self._elsewhere: dict[int, tuple[float, list[Any]]] = {}
        self._gap = 0.0
        self._told: tuple[Any, ...] | None = None
        self.wait: CollectiveWait | None = None

    def begin(self) -> None:
        """Look until the process ends; does nothing where no rank waits for another."""
        if self._spec["world_size"] > 1 and self._spec["flight_recorder"] and self._ranks:
            threading.Thread(target=self._watch, daemon=True).start()

    def note(self, used: Mapping[int, Mapping[str, int] | None]) -> None:
        """Take what ranks used in the last second; None of one that has ended, or is new."""
        now = self._measured = time.monotonic()
        for rank, values in used.items():
            if values is not None and (
                values["cpu"] > _BUSY or values["read"] > 0 or values["written"] > 0
            ):
                self._ranks[rank].idle_since = now

    def take(self, node: int, looks: list[Any]) -> None:
        """Take what was seen on another node."""
        self._elsewhere[node] = (time.monotonic(), looks)

    @property
    def _after(self) -> float:
        after = self._spec["hang_after"]
        return max(_LEAST, _GAPS * self._gap) if after is None else float(after)

    def _watch(self) -> None:
        while True:
            _pause(min(max(self._after / _LOOKS, _SOONEST), _LATEST))
            self.look()

    def look(self) -> None:
        """Ask the ranks, compare them, and tell the supervisor what is new."""
        after = self._after
        asked = time.monotonic()
        stands = any(asked - one.stood_since >= after / 3 for one in self._ranks.values())
        answers = ask_ranks(self._addresses, everything=stands)
        now = time.monotonic()
        for rank, one in self._ranks.items():
            self._gap = max(self._gap, one.take(answers.get(rank), now))
        # As they were when they were asked: a rank that does not answer takes its time.
        looks = {rank: self._look_of(rank, one, asked) for rank, one in self._ranks.items()}
        if self._node:
            self._send({"looks": [_message(one) for one in looks.values()]})
            return
        for node, (came, seen) in list(self._elsewhere.items()):
            for value in seen:
                look = _checked_look(value, node, now - came)
                if look is not None:
                    looks[look.rank] = look
        self._compare(looks, after)

    def _look_of(self, rank: int, one: _Rank, now: float) -> RankLook:
        fields = stat_fields(one.pid)
        if one.wakes(now):
            one.idle_since = now
        state = fields[0].decode() if fields and fields[0] not in (b"Z", b"X") else ""
        if not state and one.lives:
            one.lives, one.idle_since = False, now
        return RankLook(
            rank, node=self._node, state=state, answer=one.answer, now=one.silent < _LATELY,
            stood=max(0.0, now - one.stood_since), idle=max(0.0, self._measured - one.idle_since),
        )  # fmt: skip

    def _compare(self, looks: dict[int, RankLook], after: float) -> None:
        wait = collective_wait(looks, after, code_dir=self._spec["code_dir"])
        if wait is not None and self._see_stacks(wait, looks):
            wait = collective_wait(looks, after, code_dir=self._spec["code_dir"])
        self.wait = wait
        key = None if wait is None else (wait.kind, wait.alarm, wait.ranks)
        ends = wait is not None and wait.alarm and wait.seconds >= self._patience(after)
        if (key, ends) != self._told:
            self._told = (key, ends)
            said = None if wait is None else wait.to_json()
            self._send({"wait": said, "ends": ends})

    def _patience(self, after: float) -> float:
        """After how long a hang ends the run."""
        if self._spec["hang"] == "stop":
            return after
        limit = self._spec["progress_timeout"]
        return float("inf") if limit is None else max(after, limit)

    def _see_stacks(self, wait: CollectiveWait, looks: Mapping[int, RankLook]) -> bool:
        """Ask ranks for their stacks in the other way if they do not answer in this one; return
        whether one did."""
        found = False
        for rank in wait.ranks:
            one = self._ranks.get(rank)
            if one is None or looks[rank].now or one.asked_by_signal or not looks[rank].state:
                continue
            one.asked_by_signal = True
            stack = stack_of_rank(self._spec["run_dir"], rank, self._restart, one.pid)
            known = (
                one.answer.message() if one.answer is not None else {"marks": "", "groups": None}
            )
            answer = checked_answer({**known, "stack": stack})
            if stack and answer is not None:
                one.answer = looks[rank].answer = answer
                found = True
        return found


def _message(look: RankLook) -> dict[str, Any]:
    answer = look.answer.message() if look.answer is not None else None
    return {"rank": look.rank, "state": look.state, "now": look.now, "answer": answer,
            "stood": look.stood, "idle": look.idle}  # fmt: skip


def _checked_look(value: Any, node: int, age: float) -> RankLook | None:
    try:
        return RankLook(
            int(value["rank"]), node=node, state=str(value["state"]), now=value["now"] is True,
            answer=checked_answer(value["answer"]), stood=float(value["stood"]) + age,
            idle=float(value["idle"]) + age,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return None
