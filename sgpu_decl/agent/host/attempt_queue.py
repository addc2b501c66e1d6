"""The queue of an attempt: earlier attempts first, then the runs that it comes after, then a slot
of `max_parallel`, then devices."""

from __future__ import annotations

from sgpu_decl.agent.host.slots import Slots, Waiters, wait_for_ends

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.host.gpu_gate import GpuGate
    from sgpu_decl.agent.system.loop import Loop


class AttemptQueue:
    """Calls `on_turn(devices)` once there is room, or `on_refused(failure class, reason)` if its
    turn will never come."""

    on_turn: Callable[[tuple[str, ...]], None]
    on_refused: Callable[[str, str], None]

    def __init__(
        self, spec: Mapping[str, Any], nodes: int, loop: Loop, record: AttemptRecord
    ) -> None:
        self._spec = spec
        self._need: int = spec["gpus"]["need"] // nodes
        self._record = record
        self._waiters = Waiters(loop)
        self._slots: list[Slots] = []

    @staticmethod
    def waits(spec: Mapping[str, Any]) -> bool:
        """Whether an attempt may have to wait."""
        earlier = spec["wait_for"] or spec.get("after")
        return bool(spec["gpus"]["need"] or spec["parallel"] or earlier)

    def enter(self) -> None:
        """Wait for a turn."""
        if self._spec.get("after"):
            # Few attempts need these. Not later: sgpu may be upgraded while an attempt waits.
            from sgpu_decl.agent.attempt import upstreams
            from sgpu_decl.agent.attempt.attempt_status import read_attempt

            self._words, self._read_attempt = upstreams, read_attempt
        if self._spec["wait_for"]:
            self._record.update(waiting_for="earlier attempts")
            wait_for_ends(self._waiters, self._spec["wait_for"], self._for_upstreams)
        else:
            self._for_upstreams()

    def leave(self) -> None:
        """Stop waiting."""
        self._waiters.stop()

    def touch(self) -> None:
        """Keep the files of the slots from cleaners."""
        for slots in self._slots:
            slots.touch()

    def release(self) -> None:
        """Give the slots back."""
        for slots in self._slots:
            slots.release()

    def _for_upstreams(self) -> None:
        after = self._spec.get("after")
        if not after:
            self._for_turn()
            return
        self._record.update(waiting_for=self._words.listed(list(after)))
        wait_for_ends(
            self._waiters,
            tuple(after.values()),
            self._judge_upstreams,
            enough=lambda folder: self._read_attempt(folder)["state"] != "succeeded",
        )

    def _judge_upstreams(self) -> None:
        for name, folder in self._spec["after"].items():
            state = self._read_attempt(folder)["state"]
            if state != "succeeded":
                self.on_refused("upstream_failed", self._words.refusal(name, state))
                return
        self._for_turn()

    def _for_turn(self) -> None:
        parallel = self._spec["parallel"]
        if parallel is None:
            self._for_devices()
            return
        names = [str(number) for number in range(parallel["limit"])]
        self._wait(Slots(parallel["lock_dir"], names, 1), "max_parallel", self._for_devices)

    def _for_devices(self) -> None:
        gpus = self._spec["gpus"]
        have = len(gpus["devices"])
        if not self._need:
            self._leave_with(())
        elif self._need > have:
            why = f"{self._need} GPUs are needed, this machine has {have}"
            self.on_refused("capacity", why)
        else:
            slots = Slots(gpus["lock_dir"], gpus["devices"], self._need, _gate(gpus))
            slots.on_wait = lambda: self._record.update(waiting_for=_waiting_words(slots.kept))
            self._wait(slots, "gpus", lambda: self._leave_with(slots.names))

    def _wait(self, slots: Slots, what: str, then: Callable[[], None]) -> None:
        self._slots.append(slots)
        self._record.update(waiting_for=what)
        slots.acquire(self._waiters, then)

    def _leave_with(self, devices: tuple[str, ...]) -> None:
        self._record.update(waiting_for=None)
        self.on_turn(devices)


def _gate(gpus: Mapping[str, Any]) -> GpuGate | None:
    """What keeps GPUs from this run that others use; None if it shares them, or was launched by an
    older sgpu."""
    if not gpus.get("shared_lock_dir"):
        return None
    from sgpu_decl.agent.host.gpu_gate import GpuGate

    return GpuGate(gpus["shared_lock_dir"], gpus["callers"])


def _waiting_words(kept: Sequence[str]) -> str:
    """What an attempt waits for whose GPUs are not free, named where a gate keeps them."""
    return f"GPUs that are free: {'; '.join(kept)}" if kept else "gpus"
