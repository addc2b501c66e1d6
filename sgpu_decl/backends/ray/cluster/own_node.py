"""The head node as the one node of an attempt: the driver starts the node program there by itself.

Where the program of a run is the driver of the cluster and asks for nothing, the job of this
process is where `ray job submit` would start it. So it needs no placement group and no actor, each
of which takes a second.
"""

from __future__ import annotations

import queue
import threading

import ray

from sgpu_decl.backends.ray.cluster.node_actor import NodeStarter
from sgpu_decl.backends.ray.cluster.node_actors import Nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from sgpu_decl.backends.ray.cluster.sent_files import SentFiles


class OwnNode(Nodes):
    """See `Nodes`."""

    def __init__(self, agent: bytes, sent: SentFiles | None) -> None:
        self._starter = NodeStarter(0, agent)
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        super().__init__([_Methods(self._starter, self._run)], sent)

    def await_actors(self) -> None:
        self.places.append(self._starter.join())

    def _run(self, *arguments: Any) -> None:
        """Run the node program in a thread, which is there as long as that."""

        def run() -> None:
            try:
                answer = self._starter.run(*arguments)
            except Exception as error:  # noqa: BLE001  the driver waits for an answer
                answer = {"refused": ["platform", f"the node program cannot be started: {error!r}"]}
            self._answers.put(answer)

        threading.Thread(target=run, daemon=True).start()

    def _ended(self, seconds: float) -> Iterator[tuple[int, dict[str, Any]]]:
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            return
        self._runs.clear()
        yield 0, answer


class _Methods:
    """The methods of an actor whose object is here: what they return is in the object store."""

    def __init__(self, starter: NodeStarter, run: Callable[..., None]) -> None:
        self._starter = starter
        self._run = run

    def __getattr__(self, name: str) -> _Method:
        return _Method(self._run if name == "run" else getattr(self._starter, name))


class _Method:
    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def remote(self, *arguments: Any, **options: Any) -> Any:
        given = [ray.get(one) if isinstance(one, ray.ObjectRef) else one for one in arguments]
        return ray.put(self._method(*given, **options))
