"""The nodes of one attempt: an actor on each bundle of its placement group."""

from __future__ import annotations

import contextlib
import os
import socket
import time

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.node.earlier_output import UpstreamFailed
from sgpu_decl.agent.system.fast_stdlib import signal_name
from sgpu_decl.backends.ray.cluster import content_limit, node_actor, node_files, node_folder
from sgpu_decl.backends.ray.cluster.actor_answers import NO_ROOM, SilentNode, ready, value
from sgpu_decl.backends.ray.cluster.actor_connections import ActorConnections
from sgpu_decl.backends.ray.cluster.node_actor import NodeActor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from ray.util.placement_group import PlacementGroup

    from sgpu_decl.backends.ray.cluster.sent_files import SentFiles


_STARTUP = 120.0  # seconds until all actors must have started
_FULL = "Ray's object store is full, and the disk below it, too"
_CONNECTED = 30.0  # seconds until they must be connected: each is before it answers
_RAYLET = 3.0  # seconds in which a raylet takes a connection


# Nodes have no copy of this package.
for _module in (node_actor, node_files, node_folder, content_limit):
    ray.cloudpickle.register_pickle_by_value(_module)


class LostNode(Exception):
    """A node that ended by itself, or cannot start. `failure` is the class, `summary` the
    reason."""

    def __init__(self, failure: str, summary: str) -> None:
        super().__init__(summary)
        self.failure = failure
        self.summary = summary


class Nodes:
    """The nodes of an attempt.

    Args:
        actors: what starts the node program of each: a `NodeActor`.
        sent: the files of the launch, if there is no storage.
    """

    def __init__(self, actors: Sequence[Any], sent: SentFiles | None) -> None:
        self._actors = actors
        self._sent = sent
        self._runs: dict[Any, int] = {}
        self._collections: dict[int, Iterator[None]] = {}  # of what nodes left, by node
        self._pending_status: Any = None
        self._unused = False  # nodes have files, and no node program
        self.places: list[dict[str, Any]] = []

    def await_actors(self) -> None:
        """Wait until all actors are there.

        Raises:
            LostNode: one is not.
        """
        raise NotImplementedError

    def send_files(self, logs: str) -> Iterator[None]:
        """Send the files of the launch, if there is no storage; yields before each piece, and while
        nodes are slow. Lines of the nodes go to the folder `logs`.

        Raises:
            LostNode: one is gone, or does not get its files.
        """
        if self._sent is None:
            return
        missing = self._sent.missing_content()  # the launch may have waited for nodes for hours
        if missing is not None:
            raise LostNode("staging_failed", missing)
        self._unused = True
        try:
            yield from self._sent.send(self._actors, logs)
        except SilentNode as error:
            raise self._hanging(error) from error
        except UpstreamFailed as error:
            raise LostNode(error.failure, error.summary) from error
        except (RayError, OSError) as error:
            raise _not_sent(error) from error

    def start(self, start: Mapping[str, Any], logs: str, secrets: Mapping[str, str]) -> list[str]:
        """Start the node programs, once they have their files; return the paths of their logs,
        which lie in the folder `logs`. Without a storage there are none: `SentFiles` takes their
        lines.

        Args:
            start: see `NodeActor.run`.
            secrets: variables of the ranks of all nodes.
        """
        first = self.places[0]
        self._unused = False
        paths = []
        if self._sent is None:
            paths = [os.path.join(logs, f"{number}.log") for number in range(len(self._actors))]
        for number, actor in enumerate(self._actors):
            position = {
                "NODE_RANK": str(number),
                "NUM_NODES": str(len(self._actors)),
                "MASTER_ADDR": first["address"],
                "MASTER_PORT": str(first["port"]),
            }
            log = paths[number] if paths else None
            run = actor.run.remote({**start, "log": log}, position, dict(secrets))
            self._runs[run] = number
        return paths

    def wait(self, seconds: float) -> list[LostNode]:
        """Wait until a node program ends, at most that long, and take a piece of what those left
        that have ended; return the nodes that are lost."""
        ended: list[Any] = []
        lost: list[LostNode] = []
        if self._runs:
            ended, _ = ready(list(self._runs), timeout=0 if self.collecting else seconds)
        for run in ended:
            number = self._runs.pop(run)
            try:
                answer = value(run)
            except RayError as error:
                lost.append(_loss(number, self.places[number], error))
                continue
            if self._sent is not None:
                self._collections[number] = self._sent.collect(number)
            code = answer.get("code")
            if "refused" in answer:
                lost.append(self._lost_actor(number) or LostNode(*answer["refused"]))
            elif code is not None and code < 0:
                summary = f"the node program of node {number} was ended by {signal_name(-code)}"
                lost.append(self._lost_actor(number) or LostNode("killed", summary))
        for number in list(self._collections):
            lost += self._collect_piece(number)
        return lost

    def _lost_actor(self, number: int) -> LostNode | None:  # noqa: ARG002
        """The loss of an actor whose node program was killed; None if the actor is alive."""
        return None

    def _collect_piece(self, number: int) -> list[LostNode]:
        """Take a piece of what a node left; return what was lost meanwhile."""
        lost: list[LostNode] = []
        try:
            next(self._collections[number])
            return []
        except StopIteration:
            pass
        except SilentNode as error:
            lost = [self._hanging(error)]
        except NO_ROOM:
            lost = [LostNode("platform", f"what node {number} left cannot be taken: {_FULL}")]
        except RayError as error:
            lost = [_not_taken(number, self.places[number], error)]
        except OSError as error:
            summary = f"what node {number} left cannot be written on the head node"
            summary += f": {error.strerror}"
            attempt_files.say(summary)  # the outcome of the ranks counts, if that could be written
            lost = [LostNode("platform", summary)]
        del self._collections[number]
        return lost

    def _hanging(self, error: SilentNode) -> LostNode:
        where = f"the actor on {self.places[error.number]['address']} hangs"
        return LostNode("node_lost", f"{error}: {where}")

    @property
    def running(self) -> bool:
        """Whether a node program runs, or not all is here of what one left."""
        return bool(self._runs) or self.collecting

    @property
    def collecting(self) -> bool:
        """Whether not all is here of what a node program left that has ended."""
        return bool(self._collections)

    def status(self) -> dict[str, Any] | None:
        """What the first agent said of the run last; None if that is nothing new."""
        if self._pending_status is None:
            self._pending_status = self._actors[0].agent_status.remote()
            return None
        if not ready([self._pending_status], timeout=0)[0]:
            return None
        pending, self._pending_status = self._pending_status, None
        try:
            answer: dict[str, Any] | None = value(pending)
        except RayError:
            return None
        return answer

    def stop(self) -> None:
        """Ask the node programs to stop their ranks."""
        for actor in self._actors:
            actor.stop.remote()

    def close(self, patience: float) -> None:
        """Give the nodes back. If no node program was started, each has so many seconds to delete
        what was sent there; later actors delete the rest."""
        if self._unused:
            discards = [actor.discard.remote() for actor in self._actors]
            ready(discards, count=len(discards), timeout=patience)


class NodeGroup(Nodes):
    """The actors of an attempt, in a placement group that ends with them.

    Args:
        agent: the archive of the node agent.
        bundle: the resources of each node, which its actor takes.
        sent: see `Nodes`.
    """

    def __init__(
        self,
        group: PlacementGroup,
        agent: bytes,
        bundle: Mapping[str, float],
        sent: SentFiles | None,
    ) -> None:
        self._group = group
        count = group.bundle_count
        self._connections = ActorConnections(ray.util.get_node_ip_address(), count)
        others = {name: value for name, value in bundle.items() if name not in ("CPU", "GPU")}
        memory = others.pop("memory", None)
        actors = [
            ray.remote(NodeActor)
            .options(
                num_cpus=bundle.get("CPU", 0),
                num_gpus=bundle.get("GPU", 0),
                memory=memory,
                resources=others,
                max_concurrency=4,
                max_restarts=0,
                # Workers run at nice 15. Ray reads this where it starts the worker.
                runtime_env={"env_vars": {"RAY_worker_niceness": "0"}},
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=number
                ),
            )
            .remote(number, agent, self._connections.address, greeting)
            for number, greeting in enumerate(self._connections.greetings)
        ]
        super().__init__(actors, sent)

    def await_actors(self) -> None:
        answers = [actor.join.remote() for actor in self._actors]
        deadline = time.monotonic() + _STARTUP
        for number, answer in enumerate(answers):
            try:
                self.places.append(ray.get(answer, timeout=max(0.0, deadline - time.monotonic())))
            except GetTimeoutError as error:
                summary = f"the actor of node {number} did not answer within {_STARTUP:.0f} s"
                raise LostNode("platform", summary) from error
            except RayError as error:
                raise _loss(number, None, error) from error
        absent = self._connections.accept(_CONNECTED)
        if absent:
            place = self.places[absent[0]]
            summary = f"node {absent[0]} ({place['address']}) lost its connection to the driver"
            raise LostNode("node_lost", summary)

    def close(self, patience: float) -> None:
        super().close(patience)
        self._connections.close()
        with contextlib.suppress(RayError):
            remove_placement_group(self._group)

    def _lost_actor(self, number: int) -> LostNode | None:
        """The loss of an actor whose node program was killed; None if the actor is alive. A worker
        kills its children when it exits, as it does without its raylet, and may still say how they
        ended (`RAY_kill_child_processes_on_worker_exit` in Ray's documentation of user-spawned
        processes)."""
        try:
            ray.get(self._actors[number].__ray_ready__.remote(), timeout=_CONNECTED)
        except RayError as error:
            return _loss(number, self.places[number], error)
        return None


def _loss(number: int, place: Mapping[str, Any] | None, error: RayError) -> LostNode:
    where = f"node {number}" + (f" ({place['address']})" if place else "")
    text = str(error).strip()
    if "OutOfMemory" in type(error).__name__:
        return LostNode("oom", f"{where}: Ray's memory monitor ended it: {text}")
    if getattr(error, "preempted", False):
        return LostNode("preempted", f"{where} was preempted: {text}")
    why = _words(error)
    if place is not None:
        attempt_files.say(f"{where} was lost: {why}")
        why = "the worker process there that Ray had started for it has ended"
        if not _has_raylet(place["node"]):
            why = "the raylet there, Ray's process on each node, has ended or cannot be reached"
    return LostNode("node_lost", f"{where} was lost: {why}")


def _has_raylet(node: str) -> bool:
    """Whether the raylet of a node of Ray takes connections. A killed one stays `Alive` in Ray's
    table for up to 20 s."""
    for row in ray.nodes():
        if row["NodeID"] == node and row["Alive"]:
            address = (row["NodeManagerAddress"], row["NodeManagerPort"])
            with contextlib.suppress(OSError), socket.create_connection(address, _RAYLET):
                return True
    return False


def _not_sent(error: RayError | OSError) -> LostNode:
    """Why nodes do not get the files of the launch. An error of a node is the `cause` of Ray's
    (`RayTaskError` in `ray/exceptions.py`)."""
    if isinstance(error, NO_ROOM):
        return LostNode("staging_failed", f"the files of the launch cannot be sent: {_FULL}")
    cause = getattr(error, "cause", error)
    if isinstance(cause, OSError):
        where = f": `{cause.filename}`" if cause.filename else ""
        summary = f"the files of the launch cannot be sent: {cause.strerror or cause}{where}"
        return LostNode("staging_failed", summary)
    return LostNode("node_lost", f"a node was lost: {_words(error)}")


def _not_taken(number: int, place: Mapping[str, Any] | None, error: RayError) -> LostNode:
    """Why what a node left cannot be taken: its disk, or the node is lost; see `_not_sent`."""
    cause = getattr(error, "cause", None)
    if not isinstance(cause, OSError):
        return _loss(number, place, error)
    where = f": `{cause.filename}`" if cause.filename else ""
    summary = f"what node {number} left cannot be read there: {cause.strerror or cause}{where}"
    return LostNode("platform", summary)


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
