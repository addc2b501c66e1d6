"""The head node as the one node of an attempt: the driver starts the node program there by itself.

Where the program of a run is the driver of the cluster and asks for nothing, the job of this
process is where `ray job submit` would start it. So it needs no placement group and no actor, each
of which takes a second.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from threading import Thread

import ray
from ray.exceptions import RayTaskError

from sgpu_decl.backends.ray.cluster.node_actor import NodeStarter
from sgpu_decl.backends.ray.cluster.node_actors import Nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sgpu_decl.backends.ray.cluster.sent_files import SentFiles


class OwnNode(Nodes):
    """See `Nodes`."""

    def __init__(self, agent: bytes, sent: SentFiles | None) -> None:
        self._starter = NodeStarter(0, agent)
        super().__init__([_Actor(self._starter)], sent)

    def await_actors(self) -> None:
        self.places.append(self._starter.join())


class _Actor:
    """Calls methods as those of an actor are called, each in a thread of its own."""

    def __init__(self, starter: NodeStarter) -> None:
        self._starter = starter

    def __getattr__(self, name: str) -> _Method:
        return _Method(getattr(self._starter, name))


class _Method:
    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def remote(self, *arguments: Any, **options: Any) -> Future[Any]:
        given = [ray.get(one) if isinstance(one, ray.ObjectRef) else one for one in arguments]
        answer: Future[Any] = Future()
        call = partial(self._method, *given, **options)
        Thread(target=_answer, args=(answer, call), daemon=True).start()
        return answer


def _answer(answer: Future[Any], call: Callable[[], Any]) -> None:
    """Call, and leave what an actor would leave."""
    try:
        answer.set_result(call())
    except Exception as error:  # noqa: BLE001  it is raised where it is waited for
        answer.set_exception(RayTaskError("", "", error).as_instanceof_cause())
