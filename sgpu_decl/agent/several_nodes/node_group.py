"""Several nodes as one group: which ranks are on which node, and who decides.

Agent 0 (`Leader`) decides everything: when ranks start, when they stop, whether they start again,
and how the run ended. The other agents (`Follower`) report what their ranks do and do what it says.
Their exit code is the run's too. For agent 0, an event happens when its message arrives, so one
clock orders all causes. The offsets of the other clocks are noted in its events.

A lost node is the first cause, unless a rank had failed by itself before. A node that loses agent 0
stops its ranks and ends as `node_lost`. Agent 0 claims the rendezvous port of the ranks on its own
host, and sends it with the start. A node whose code or environment is missing still joins, but
starts no ranks: agent 0 then reports one error that names the node.

    follower ─▶ agent 0   ended {rank, ...} · refused · ready · stalled · idle {outcome} · signal
                          · swept {left, usage} · ray {...} · monitor {seen or looks} · held
    agent 0 ─▶ follower   start {restart, port, env, own} · tracked · stacks · stop · kill
                          · finish {outcome} · ray {...} · queue

Nodes that other runs share wait for their devices one after the other, in an order that all runs
keep: so of two runs, none holds what the other one waits for. They join before that.
"""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.attempt.monitor_files import idle_pause, monitored, usage_in
from sgpu_decl.agent.attempt.outcome import Outcome, failed
from sgpu_decl.agent.attempt.previous_output import left_output
from sgpu_decl.agent.attempt.verdict import RankEnding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.several_nodes.node_wire import Hub, Link
    from sgpu_decl.agent.system.loop import Loop

    class Actions(Protocol):
        """What a team calls at the supervisor of its node."""

        def start_ranks(
            self, restart: int, port: int, extra: Mapping[str, str], *, own_output: bool
        ) -> None: ...
        def rank_refused(self, refusal: Outcome, reason: str = "launch") -> None: ...
        def all_ready(self) -> None: ...
        def rank_failed(self, *, collateral: bool) -> None: ...
        def node_lost(self, node: int, why: str) -> None: ...
        def stop_ranks(self, reason: str) -> None: ...
        def kill_ranks(self) -> None: ...
        def write_tracking(self, answer: dict[str, Any]) -> None: ...
        def ray_reported(self, node: int, message: Mapping[str, Any]) -> None: ...
        def ray_ordered(self, message: Mapping[str, Any]) -> None: ...
        def monitor_reported(self, node: int, message: Mapping[str, Any]) -> None: ...
        def leave_stacks(self) -> None: ...
        def judge(self) -> None: ...
        def finish(self, outcome: Outcome) -> None: ...


SILENCE = 10.0
_PATIENCE = 600.0  # seconds until all nodes must have joined, without a startup_timeout
_SOON = 120.0  # the same for nodes with turns, which are all started before devices are waited for


class Node:
    """Which of `count` nodes this is.

    Attributes:
        address, port: those of agent 0.
        silence: a node that sends nothing for so many seconds is lost.
        spec_hash: a hash over what all nodes must have alike.
        unprepared: if ranks cannot start on this node, the class of that failure and a summary.
        restart: how often ranks were started before.
        turns: the numbers of nodes that other runs share, in the order in which they wait.
        own_folder: whether the run's folder on this machine is that of this node alone.
    """

    __slots__ = (
        "address", "count", "number", "own_folder", "port", "restart", "silence", "spec_hash",
        "turns", "unprepared",
    )  # fmt: skip

    def __init__(
        self,
        number: int = 0,
        count: int = 1,
        address: str = "127.0.0.1",
        port: int = 0,
        *,
        silence: float = SILENCE,
        spec_hash: str = "",
        unprepared: tuple[str, str] | None = None,
        restart: int = 0,
        turns: Sequence[int] = (),
        own_folder: bool = False,
    ) -> None:
        self.turns = turns
        self.own_folder = own_folder
        self.number = number
        self.count = count
        self.address = address
        self.port = port
        self.silence = silence
        self.spec_hash = spec_hash
        self.unprepared = unprepared
        self.restart = restart

    def records(self, run_dir: str) -> str:
        """Return the folder of this node's own records; nodes may share the run's folder."""
        if self.number == 0 or self.own_folder:
            return run_dir
        return os.path.join(run_dir, "nodes", str(self.number))

    def local_world_size(self, spec: Mapping[str, Any]) -> int:
        return int(spec["world_size"]) // self.count

    def ranks(self, spec: Mapping[str, Any]) -> range:
        """Return the processes that this node starts; all nodes count on. A Ray cluster has one
        driver, on the first node."""
        if spec.get("ray"):
            return range(int(self.number == 0))
        each = 1 if spec["per"] == "node" else self.local_world_size(spec)
        return range(self.number * each, (self.number + 1) * each)


FIRST = Node()


class Team:
    """One node alone; `Leader` and `Follower` override what differs with several.

    `decides` is False for an agent that does what agent 0 says. `others_used` is what the ranks of
    the other nodes used: see `monitor_files`.
    """

    def __init__(self, node: Node, actions: Actions, spec: Mapping[str, Any]) -> None:
        self.node = node
        self._spec = spec
        self.actions = actions
        self.decides = True
        self.others_used: list[dict[str, Any]] = []

    @property
    def address(self) -> str:
        """The address of this node for the others: the local one of its control connection."""
        return "127.0.0.1"

    @property
    def patience(self) -> float:
        """Seconds until all nodes must have joined."""
        return _SOON if self.node.turns else self._spec["startup_timeout"] or _PATIENCE

    def await_turn(self, enter: Callable[[], None]) -> None:
        """Have this node `enter` its queue for devices, when it may."""
        enter()

    def gather(self, then: Callable[[], None]) -> None:
        """This node has its devices: call `then` once every node is there and has its own. It
        starts the ranks."""
        then()

    def start(self, restart: int, port: int, extra: Mapping[str, str]) -> None:
        """Start the ranks of all nodes."""
        own = left_output(self._spec)
        self.actions.start_ranks(restart, port, extra, own_output=own)

    def send_tracking(self, answer: dict[str, Any]) -> None:
        """Send the other nodes the MLflow run."""

    def report_ray(self, message: dict[str, Any]) -> None:
        """Tell agent 0 what the Ray node of this machine reports."""
        self.actions.ray_reported(0, message)

    def order_ray(self, message: dict[str, Any]) -> None:
        """Tell the other nodes to join the Ray cluster."""

    def ready(self) -> None:
        """All ranks of this node are about to load the user's code."""
        self.actions.all_ready()

    def stalled(self) -> None:
        """No rank of this node did anything for a progress_timeout."""
        self.actions.stop_ranks("hung")

    def idle(self, outcome: Outcome) -> None:
        """This node uses too little of what it holds: the outcome if all nodes do."""
        self.actions.rank_refused(outcome, "idle")

    def leave_stacks(self) -> None:
        """Have the ranks of the other nodes write their stacks."""

    def report_monitor(self, message: dict[str, Any]) -> None:
        """Tell the monitor of node 0 what that of this node sees."""

    def ended(self, ending: RankEnding) -> None:
        """A rank of this node has ended."""

    def refused(self, outcome: Outcome) -> None:
        """A rank of this node could not be started: tell agent 0."""

    def signalled(self, name: str) -> None:
        """Somebody asked this agent to stop: tell agent 0."""

    def stop(self, reason: str) -> None:
        """Tell the others to stop their ranks."""

    def kill(self) -> None:
        """Tell the others to kill their ranks."""

    def swept(self) -> None:
        """Nothing of this node's ranks is left."""
        self.actions.judge()

    def others(self) -> list[RankEnding]:
        """How the ranks of the other nodes ended."""
        return []

    def finish(self, outcome: Outcome) -> None:
        """Tell the others how the run ended."""


class Leader(Team):
    """Agent 0 of several."""

    def __init__(
        self, node: Node, actions: Actions, *, loop: Loop, hub: Hub, record: AttemptRecord,
        spec: Mapping[str, Any],
    ) -> None:  # fmt: skip
        super().__init__(node, actions, spec)
        self._loop = loop
        self._hub = hub
        self._record = record
        self._others_left = False
        self._endings: list[RankEnding] = []
        self._turns: list[int] = []
        self._begun = False
        self._unready: set[int] = set()
        self._unswept: set[int] = set()
        self._stalled: dict[int, float] = {}
        self._idle: dict[int, float] = {}
        hub.on_message = self._receive
        hub.on_lost = self._lost
        hub.on_refused = lambda why: record.event("node_refused", reason=why)

    @property
    def address(self) -> str:
        return self._hub.address

    def await_turn(self, enter: Callable[[], None]) -> None:
        if self.node.turns:
            self._turns = list(self.node.turns)
            self._enter = enter
            self._join(self._next_turn)
        else:
            enter()

    def gather(self, then: Callable[[], None]) -> None:
        if self.node.turns:
            self._then = then
            self._next_turn(0)
        else:
            self._join(then)

    def _next_turn(self, held: int | None = None) -> None:
        """Let the next node wait for its devices, now that another one holds its own."""
        if held is not None:
            self._turns.remove(held)
        if not self._turns:
            self._then()
        elif self._turns[0] == 0:
            self._enter()
        else:
            self._record.update(waiting_for=f"the devices of node {self._turns[0]}")
            self._hub.members[self._turns[0]].wire.send({"queue": True})

    def _join(self, then: Callable[[], None]) -> None:
        def complete() -> None:
            self._loop.cancel("gather")
            self._record.event("nodes_joined", nodes=self.node.count)
            then()

        def late() -> None:
            joined = {0, *self._hub.members}
            missing = [number for number in range(self.node.count) if number not in joined]
            also = "".join(f", nor did node {number}" for number in missing[1:])
            self.actions.node_lost(missing[0], f"it did not join within {patience:g} s{also}")

        patience = self.patience
        self._hub.on_complete = complete
        try:
            self._hub.listen()
        except OSError as error:
            where = f"{self.node.address}:{self.node.port}"
            why = f"agent 0 cannot listen on {where}: {error.strerror}"
            self.actions.rank_refused(failed("launch_failed", why))
        else:
            self._loop.after("gather", patience, late)

    def start(self, restart: int, port: int, extra: Mapping[str, str]) -> None:
        self._restart = restart
        self._begun = True
        self._endings = []
        self._stalled = {}
        self._idle = {}
        self.others_used = []
        self._unswept = {0, *self._hub.members}
        nodes = {node: Node(node, self.node.count) for node in self._unswept}
        self._unready = {node for node in nodes if nodes[node].ranks(self._spec)}
        own = self._others_left or left_output(self._spec)
        start = {"restart": restart, "port": port, "env": dict(extra), "own": own}
        self._hub.send({"start": start})
        self.actions.start_ranks(restart, port, extra, own_output=own)

    def send_tracking(self, answer: dict[str, Any]) -> None:
        self._hub.send({"tracked": answer})

    def order_ray(self, message: dict[str, Any]) -> None:
        self._hub.send({"ray": message})

    def ready(self) -> None:
        self._is_ready(0)

    def stalled(self) -> None:
        self._is_stalled(0)

    def idle(self, outcome: Outcome) -> None:
        self._is_idle(0, outcome)

    def leave_stacks(self) -> None:
        self._hub.send({"stacks": True})

    def stop(self, reason: str) -> None:
        self._hub.send({"stop": reason})

    def kill(self) -> None:
        self._hub.send({"kill": True})

    def swept(self) -> None:
        self._is_swept(0)

    def others(self) -> list[RankEnding]:
        return list(self._endings)

    def finish(self, outcome: Outcome) -> None:
        self._loop.cancel("gather")
        self._record.event("clocks", offset_ns=self._hub.offsets())
        self._hub.send({"finish": outcome.message()})
        self._hub.close()

    def _receive(self, node: int, message: dict[str, Any]) -> None:
        if "ended" in message:
            self._rank_ended(message["ended"])
        elif "ready" in message:
            self._is_ready(node)
        elif "stalled" in message:
            self._is_stalled(node)
        elif "idle" in message:
            self._is_idle(node, Outcome(**message["idle"]))
        elif "swept" in message:
            self._others_left = self._others_left or message["swept"]["left"]
            if used := usage_in(message["swept"]):
                self.others_used.append(used)
            self._is_swept(node)
        elif "refused" in message:
            self.actions.rank_refused(Outcome(**message["refused"]))
        elif "held" in message:
            self._next_turn(node)
        elif "ray" in message:
            self.actions.ray_reported(node, message["ray"])
        elif "monitor" in message:
            self.actions.monitor_reported(node, message["monitor"])
        elif "signal" in message:
            self._record.event("signal", name=message["signal"], node=node)
            self.actions.stop_ranks("cancelled")

    def _rank_ended(self, message: dict[str, Any]) -> None:
        ending = RankEnding.from_message(message, received_ns=time.monotonic_ns())
        self._endings.append(ending)
        self._record.ended(ending, self._restart)
        if ending.failed and not ending.by_us:
            self.actions.rank_failed(collateral=ending.collateral)

    def _is_ready(self, node: int) -> None:
        for rank in Node(node, self.node.count).ranks(self._spec):
            if self._record.ranks[rank]["state"] == "queued":
                self._record.rank(rank, state="running")
        self._unready.discard(node)
        if not self._unready:
            self.actions.all_ready()

    def _is_stalled(self, node: int) -> None:
        """A node repeats this while it is idle, so an old message does not count."""
        now = time.monotonic()
        self._stalled[node] = now
        lasts = 1.5 * self._spec["progress_timeout"] + 1.0
        if all(now - self._stalled.get(other, -lasts) < lasts for other in self._unswept):
            self.actions.stop_ranks("hung")

    def _is_idle(self, node: int, outcome: Outcome) -> None:
        """As with `_is_stalled`."""
        now = time.monotonic()
        self._idle[node] = now
        lasts = 3 * idle_pause(self._spec["idle"]) + 2.0
        if all(now - self._idle.get(other, -lasts) < lasts for other in self._unswept):
            self.actions.rank_refused(outcome, "idle")

    def _is_swept(self, node: int) -> None:
        self._unswept.discard(node)
        if not self._unswept:
            self._begun = False  # until ranks start again, all nodes are needed
            self.actions.judge()

    def _lost(self, node: int, why: str) -> None:
        self._unready.discard(node)
        self._record.event("node_lost", node=node, reason=why)
        if not self._begun or node in self._unswept:
            ended = {ending.rank for ending in self._endings}
            for rank in Node(node, self.node.count).ranks(self._spec):
                if rank not in ended:
                    self._record.rank(rank, state="lost")
            self.actions.node_lost(node, why)
            if self._begun:
                self._is_swept(node)


class Follower(Team):
    """Any other agent of several."""

    def __init__(
        self, node: Node, actions: Actions, *, loop: Loop, link: Link, record: AttemptRecord,
        spec: Mapping[str, Any],
    ) -> None:  # fmt: skip
        super().__init__(node, actions, spec)
        self._loop = loop
        self._link = link
        self._record = record
        link.on_joined = self._joined
        link.on_message = self._receive
        link.on_lost = self._lost

    @property
    def address(self) -> str:
        return self._link.address

    def await_turn(self, enter: Callable[[], None]) -> None:
        if self.node.turns:
            self._enter = enter
            self._link.connect(self.patience)
        else:
            enter()

    def gather(self, then: Callable[[], None]) -> None:
        del then  # agent 0 starts the ranks
        if self.node.turns:
            self._link.send({"held": True})
        else:
            self._link.connect(self.patience)

    def ready(self) -> None:
        self._link.send({"ready": True})
        self.actions.all_ready()

    def stalled(self) -> None:
        self._link.send({"stalled": True})

    def idle(self, outcome: Outcome) -> None:
        self._link.send({"idle": outcome.message()})

    def report_monitor(self, message: dict[str, Any]) -> None:
        self._link.send({"monitor": message})

    def ended(self, ending: RankEnding) -> None:
        self._link.send({"ended": ending.message(time.monotonic_ns())})

    def refused(self, outcome: Outcome) -> None:
        self._link.send({"refused": outcome.message()})

    def signalled(self, name: str) -> None:
        self._link.send({"signal": name})

    def report_ray(self, message: dict[str, Any]) -> None:
        self._link.send({"ray": message})

    def swept(self) -> None:
        if self.decides:
            self.actions.judge()
        else:
            used = monitored(self.node.records(self._spec["run_dir"])).get("usage")
            self._link.send({"swept": {"left": left_output(self._spec), "usage": used}})

    def _receive(self, message: dict[str, Any]) -> None:
        if "start" in message:
            start = message["start"]
            self.actions.start_ranks(
                start["restart"], start["port"], start["env"], own_output=start["own"]
            )
        elif "queue" in message:
            self._enter()
        elif "tracked" in message:
            self.actions.write_tracking(message["tracked"])
        elif "ray" in message:
            self.actions.ray_ordered(message["ray"])
        elif "stacks" in message:
            self.actions.leave_stacks()
        elif "stop" in message:
            self.actions.stop_ranks(message["stop"])
        elif "kill" in message:
            self.actions.kill_ranks()
        elif "finish" in message:
            self._link.close()
            self.actions.finish(Outcome(**message["finish"]))

    def _joined(self) -> None:
        self.decides = False

    def _lost(self, why: str) -> None:
        self.decides = True
        self._record.event("node_lost", node=0, reason=why)
        self.actions.node_lost(0, why)


def join_team(
    node: Node, actions: Actions, *, loop: Loop, record: AttemptRecord, spec: Mapping[str, Any]
) -> Team:
    """Return the team of a node. The code for several nodes is loaded only if needed."""
    if node.count == 1:
        return Team(node, actions, spec)
    from sgpu_decl.agent.several_nodes.node_wire import Hub, Link

    if node.number == 0:
        hub = Hub(loop, node, key=spec["control_key"], spec=node.spec_hash)
        return Leader(node, actions, loop=loop, hub=hub, record=record, spec=spec)
    link = Link(loop, node, key=spec["control_key"], spec=node.spec_hash)
    return Follower(node, actions, loop=loop, link=link, record=record, spec=spec)
