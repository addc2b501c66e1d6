"""What ranks answer when they are asked what they do: see `rank.collective_answers`, which answers.

All are asked at once, and nobody waits for a rank that does not answer: it may be stopped, or hold
the lock of the interpreter. What comes back was written by a process of the user, and may be
anything.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time

from sgpu_decl.agent.attempt.attempt_files import parse_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Frame = tuple[str, str, int]
    Group = tuple[str, tuple[int, ...]]  # its name and its ranks

_PATIENCE = 2.0  # seconds for all answers together
_LARGEST = 1 << 20  # bytes of an answer
_CHUNK = 1 << 16
_MOST = 64  # frames, groups, collectives of a group
_LONGEST = 300


class Collective:
    """The `number`th collective of a group, of so many `elements` in all tensors; `pending` while
    it is not complete."""

    __slots__ = ("call", "elements", "number", "pending", "sizes", "types")

    def __init__(
        self,
        number: int,
        call: str,
        sizes: str = "",
        types: str = "",
        *,
        elements: int = 0,
        pending: bool = False,
    ) -> None:
        self.number = number
        self.call = call
        self.sizes = sizes
        self.elements = elements
        self.types = types
        self.pending = pending


class RankAnswer:
    """Where the main thread of a rank is (`stack`, the innermost frame first), what changes with
    each collective (`marks`), and the last collectives of each group; None if they were not asked
    for, or are not known."""

    __slots__ = ("groups", "marks", "stack")

    def __init__(
        self,
        stack: tuple[Frame, ...],
        marks: str,
        groups: Mapping[Group, tuple[Collective, ...]] | None,
    ) -> None:
        self.stack = stack
        self.marks = marks
        self.groups = groups

    def message(self) -> dict[str, Any]:
        """Return it as JSON, as the rank wrote it."""
        groups = None
        if self.groups is not None:
            groups = [
                {"name": name, "ranks": ranks,
                 "last": [{slot: getattr(one, slot) for slot in one.__slots__} for one in last]}
                for (name, ranks), last in self.groups.items()
            ]  # fmt: skip
        return {"stack": self.stack, "marks": self.marks, "groups": groups}


def checked_answer(value: object) -> RankAnswer | None:
    """The answer in a value from JSON; None if it is none."""
    try:
        found: Any = value
        stack = tuple(
            (str(name)[:_LONGEST], str(file)[-_LONGEST:], int(line))
            for name, file, line in found["stack"][:_MOST]
        )
        groups = found["groups"]
        if groups is not None:
            groups = {
                (str(one["name"])[:_LONGEST], tuple(map(int, one["ranks"]))): tuple(
                    Collective(
                        int(each["number"]), str(each["call"])[:_LONGEST],
                        str(each["sizes"])[:_LONGEST], _types(each["types"]),
                        elements=int(each["elements"]), pending=each["pending"] is True,
                    )
                    for each in one["last"][-_MOST:]
                )
                for one in groups[:_MOST]
            }  # fmt: skip
        return RankAnswer(stack, str(found["marks"]), groups)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _types(value: Any) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ", ".join(map(str, value))[:_LONGEST]


def ask_ranks(addresses: Mapping[int, str], *, everything: bool) -> dict[int, RankAnswer]:
    """Ask ranks at their addresses, with `everything` for their collectives, too. Return the
    answers of those that gave one in time."""
    answers: dict[int, RankAnswer] = {}
    with selectors.DefaultSelector() as waiting:
        open_ones: dict[socket.socket, tuple[int, bytearray]] = {}
        for rank, address in addresses.items():
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.setblocking(False)  # noqa: FBT003
            try:
                connection.connect(f"\0{address}")
                if _owner(connection) != os.geteuid():
                    raise PermissionError
                connection.send(b"*" if everything else b"?")
            except OSError:  # it has joined no group yet, has ended, or has not answered for long
                connection.close()
                continue
            open_ones[connection] = (rank, bytearray())
            waiting.register(connection, selectors.EVENT_READ)
        until = time.monotonic() + _PATIENCE
        while open_ones and (left := until - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                speaking: Any = key.fileobj
                rank, data = open_ones[speaking]
                if _more(speaking, data):
                    continue
                waiting.unregister(speaking)
                del open_ones[speaking]
                speaking.close()
                answer = checked_answer(parse_object(bytes(data)))
                if answer is not None:
                    answers[rank] = answer
        for connection in open_ones:
            connection.close()
    return answers


def _owner(connection: socket.socket) -> int:
    """The user whose process listens there."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("3i", data)[1])


def _more(connection: socket.socket, data: bytearray) -> bool:
    """Read what has come; whether more may come."""
    try:
        chunk = connection.recv(_CHUNK)
    except BlockingIOError:
        return True
    except OSError:
        data.clear()
        return False
    data += chunk
    if len(data) > _LARGEST:
        data.clear()
        return False
    return bool(chunk)
