"""Who failed first, and why: a pure function of how the ranks ended."""

from __future__ import annotations

from sgpu_decl.agent.system.byte_size import size
from sgpu_decl.agent.system.fast_stdlib import signal, signal_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

SIMULTANEOUS_NS = 5_000_000
_OWN_FAULT = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS}
)


class RankEnding:
    """How one rank ended; times are CLOCK_MONOTONIC in nanoseconds.

    Attributes:
        term_ns, kill_ns: when this agent sent it TERM and KILL, if it did.
        error: the record that the rank left: see `error_file`.
        memory: why the kernel killed it for memory, if it did.
        stack: the `text` of its stacks, if it crashed or hung, and their `file`, relative to the
            run's folder.
        known: the `kind` of its failure and its `explanation`, if the kind is known.
    """

    __slots__ = (
        "ended_ns",
        "error",
        "exit_code",
        "kill_ns",
        "known",
        "memory",
        "rank",
        "signal",
        "stack",
        "started_ns",
        "term_ns",
    )

    def __init__(
        self,
        *,
        rank: int,
        ended_ns: int,
        started_ns: int = 0,
        exit_code: int | None = None,
        signal: int | None = None,
        error: dict[str, Any] | None = None,
        term_ns: int | None = None,
        kill_ns: int | None = None,
        memory: dict[str, Any] | None = None,
        stack: dict[str, str] | None = None,
        known: dict[str, Any] | None = None,
    ) -> None:
        self.rank = rank
        self.started_ns = started_ns
        self.ended_ns = ended_ns
        self.exit_code = exit_code
        self.signal = signal
        self.error = error
        self.term_ns = term_ns
        self.kill_ns = kill_ns
        self.memory = memory
        self.stack = stack
        self.known = known

    def message(self, now_ns: int) -> dict[str, Any]:
        """Return it as a message to another node; `now_ns` is this node's time."""
        return {"now_ns": now_ns, **{name: getattr(self, name) for name in self.__slots__}}

    @classmethod
    def from_message(cls, message: Mapping[str, Any], received_ns: int) -> RankEnding:
        """Return the ending that another node sent, in this node's time.

        Clocks of nodes are never compared: the message counts as sent when it was received.
        """
        fields = dict(message)
        ahead = fields.pop("now_ns") - received_ns
        for name in ("started_ns", "ended_ns", "term_ns", "kill_ns"):
            if fields[name] is not None:
                fields[name] -= ahead
        error = fields["error"]
        if error is not None and isinstance(error.get("time_ns"), int):
            fields["error"] = {**error, "time_ns": error["time_ns"] - ahead}
        return cls(**fields)

    @property
    def failed(self) -> bool:
        return self.exit_code != 0

    @property
    def recorded_ns(self) -> int | None:
        """When it failed by its own record; None without a credible one."""
        recorded = self.error.get("time_ns") if self.error else None
        if isinstance(recorded, int) and self.started_ns < recorded <= self.ended_ns:
            return recorded
        return None

    @property
    def time_ns(self) -> int:
        """When it failed by its own record, or else when it died."""
        return self.recorded_ns or self.ended_ns

    @property
    def by_us(self) -> bool:
        """Whether it only ended because this agent stopped it."""
        if self.term_ns is None or not self.failed:
            return False
        if self.recorded_ns is not None:
            return self.recorded_ns > self.term_ns
        if self.signal == signal.SIGKILL:
            return self.kill_ns is not None
        if self.signal is not None:
            return self.signal == signal.SIGTERM or self.ended_ns > self.term_ns + SIMULTANEOUS_NS
        if self.exit_code == 128 + signal.SIGTERM:
            return True
        return self.ended_ns > self.term_ns + SIMULTANEOUS_NS

    @property
    def collateral(self) -> bool:
        return bool(self.error and self.error.get("collateral"))

    @property
    def code(self) -> int:
        """The exit code as a shell would show it; 1 if an exception came first."""
        if self.signal is not None:
            return 1 if self.recorded_ns is not None else 128 + self.signal
        return self.exit_code if self.exit_code is not None else 1


class Verdict:
    """Which rank failed first, and why.

    Primary failures come before collateral ones, then the earliest. Ranks of the same tier that
    failed within 5 ms of the first are named as simultaneous.

    Attributes:
        failed: the ranks that failed by themselves.
        first: the ending of the first of them; None if there is none.
        cause: its first cause as `status` shows it.
    """

    __slots__ = ("cause", "failed", "first")

    def __init__(self, endings: Sequence[RankEnding]) -> None:
        alone = [ending for ending in endings if ending.failed and not ending.by_us]
        alone.sort(key=lambda ending: (ending.collateral, ending.time_ns, ending.rank))
        self.failed: frozenset[int] = frozenset()
        self.first: RankEnding | None = None
        self.cause: dict[str, Any] | None = None
        if not alone:
            return
        first = self.first = alone[0]
        # A rank that was failing when it was stopped says so in its own record.
        together = [
            ending
            for ending in endings
            if ending is not first
            and (ending in alone or (ending.failed and ending.recorded_ns is not None))
            and abs(ending.time_ns - first.time_ns) <= SIMULTANEOUS_NS
        ]
        self.failed = frozenset(ending.rank for ending in (*alone, *together))
        failure, summary = _describe(first)
        traceback = first.error.get("traceback") if first.error else None
        crashed = failure == "signal_self" and first.stack is not None
        self.cause = {
            "rank": first.rank,
            "class": failure,
            "kind": None,
            "summary": summary,
            "traceback": first.stack["text"] if crashed and first.stack else traceback,
            "simultaneous": sorted(
                ending.rank for ending in together if ending.collateral == first.collateral
            ),
            **(stack_files([first]) if crashed else {}),
            **({"memory": first.memory} if failure == "oom" and first.memory else {}),
            **_missing(first),
            **(first.known or {}),
        }


def _missing(ending: RankEnding) -> dict[str, Any]:
    missing = ending.error.get("missing") if ending.error else None
    return {"missing": missing} if missing else {}


def stack_files(endings: Iterable[RankEnding]) -> dict[str, Any]:
    """Return `{"stacks": [{"rank", "file"}]}` of the ranks that left stacks; empty if none did."""
    stacks = [{"rank": one.rank, "file": one.stack["file"]} for one in endings if one.stack]
    return {"stacks": stacks} if stacks else {}


def _out_of_memory(short: Mapping[str, Any]) -> str:
    group, limit = short["group"], short["limit_bytes"]
    whose = "the machine or its group" if group is None else f"its group `{group}`"
    sizes = [f"limit {size(limit)}"] if limit is not None else []
    sizes.append(f"its peak {size(short['peak_bytes'])}")
    return f"{whose if group != '' else 'the machine'} ran out of memory ({', '.join(sizes)})"


def _describe(ending: RankEnding) -> tuple[str, str]:
    """Return the failure class and one line that says what happened."""
    rank = f"rank {ending.rank}"
    if ending.signal is not None and ending.recorded_ns is None:
        name = signal_name(ending.signal)
        if ending.signal == signal.SIGKILL and ending.memory:
            return "oom", f"{rank} was killed by the kernel: {_out_of_memory(ending.memory)}"
        if ending.signal in _OWN_FAULT:
            summary = f"{rank} crashed with {name}"
            if ending.error is not None and ending.error.get("class") == "signal_self":
                summary += f": {ending.error['summary']}"
            return "signal_self", summary
        return "killed", f"{rank} was killed with {name}, not by sgpu"
    if ending.error is not None:
        return ending.error.get("class") or "exception", ending.error["summary"]
    return "exit_code", f"{rank} exited with {ending.exit_code}"
