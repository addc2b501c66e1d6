"""What actors of nodes answer, and what they are sent: both go through Ray's object store.

Where the disk below a store is almost full, Ray refuses an object at once while the store is full
(`OutOfDiskError` in `ray/exceptions.py`). Objects that nobody needs any more leave the store within
a second or so, and others use it, too. So what found no room is tried again.
"""

from __future__ import annotations

import time
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, wait

import ray
from ray.exceptions import ObjectStoreFullError, OutOfDiskError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from typing import Any

ANSWER = 0.2
"""Seconds for the answers of all nodes; a late one is taken the next time."""

NO_ROOM = (ObjectStoreFullError, OutOfDiskError)

_SILENT = 600.0  # seconds without an answer, after which a node hangs: a piece takes seconds
_FULL = 120.0  # seconds without room, after which there will be none


class SilentNode(Exception):
    """Node `number` is alive for Ray, and does not answer."""

    def __init__(self, number: int) -> None:
        super().__init__(f"node {number} has not answered for {_SILENT:g} s")
        self.number = number


def ready(calls: Sequence[Any], *, timeout: float, count: int = 1) -> tuple[list[Any], list[Any]]:
    """As `ray.wait`, also of calls of this process (`own_node`), which are futures."""
    if not isinstance(next(iter(calls), None), Future):
        done, rest = ray.wait(list(calls), num_returns=count, timeout=timeout)
        return done, rest
    until = ALL_COMPLETED if count == len(calls) else FIRST_COMPLETED
    done = wait(calls, timeout, until).done
    return [call for call in calls if call in done], [call for call in calls if call not in done]


def value(call: Any) -> Any:
    """What an actor, or a call of this process, has answered. Raises RayError."""
    return call.result() if isinstance(call, Future) else ray.get(call)


def stored(data: bytes) -> Generator[None, None, Any]:
    """Put bytes into the object store; return their reference. Yields while it has no room. Raises
    RayError."""
    deadline = time.monotonic() + _FULL
    while True:
        try:
            return ray.put(data)
        except NO_ROOM:
            if time.monotonic() > deadline:
                raise
        yield
        time.sleep(ANSWER)


def answers(calls: Mapping[int, Any]) -> Generator[None, None, dict[int, Any]]:
    """Return what nodes answer, by their numbers; yields while it waits, so that the driver sees
    other things meanwhile. Raises RayError, SilentNode."""
    every = list(calls.values())
    deadline = time.monotonic() + _SILENT
    while pending := ready(every, count=len(every), timeout=ANSWER)[1]:
        if time.monotonic() > deadline:
            raise SilentNode(next(node for node, call in calls.items() if call in pending))
        yield
    return dict(zip(calls, map(value, every), strict=True))


def answer(node: int, call: Any) -> Generator[None, None, Any]:
    """The same of one node."""
    found = yield from answers({node: call})
    return found[node]


def large_answer(node: int, ask: Callable[[], Any], call: Any = None) -> Generator[None, None, Any]:
    """The same of an answer that the object store may have no room for.

    Args:
        ask: makes the call again, and the first one, too, unless that is `call`.
    """
    deadline = time.monotonic() + _FULL
    while True:
        try:
            return (yield from answer(node, ask() if call is None else call))
        except NO_ROOM:
            if time.monotonic() > deadline:
                raise
        call = None
        yield
        time.sleep(ANSWER)
