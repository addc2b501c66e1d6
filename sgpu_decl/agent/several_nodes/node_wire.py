"""The wire between the agents of several nodes: a line of JSON for each message, over TCP.

Agent 0 listens (`Hub`), the others connect (`Link`). First, each side proves that it knows the
run's control key, by an HMAC over a nonce of the other, and that it has the same `spec.json`. The
key is never sent. It is random: the run's token cannot serve, because MLflow tags show it. A
connection that does not authenticate is closed after 5 s, or earlier if too many others come.

Agent 0 asks each node for its clock twice a second. A node that sends nothing for its `silence`, or
whose connection ends, is lost.
"""

from __future__ import annotations

import errno
import hmac
import os
import socket
import time

from sgpu_decl.agent.attempt.attempt_files import encode, parse_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sgpu_decl.agent.several_nodes.node_group import Node
    from sgpu_decl.agent.system.loop import Loop

    Message = dict[str, Any]

_BEAT = 0.5  # seconds
_AGAIN = 0.1  # between two tries to reach agent 0
_LONGEST = 1 << 20  # bytes of one message: a traceback fits
_LONGEST_HELLO = 4096  # bytes of a message before the proof
_HANDSHAKE = 5.0  # seconds from the connection to the proof
_STRANGERS = 32  # connections at once: ranks need descriptors too
_MOST_REPORTS = 5  # of refusals for the same reason: more would fill the disk
_LINGER = 5.0  # seconds for the last message, to a node that reads slowly


def _proof(key: bytes, *words: object) -> str:
    text = "\0".join(map(str, words)).encode("utf-8", "surrogatepass")
    return hmac.new(key, text, "sha256").hexdigest()


def _proves(value: object, proof: str) -> bool:
    """Whether a value from the wire, of any type, is this proof."""
    return isinstance(value, str) and hmac.compare_digest(
        value.encode("utf-8", "surrogatepass"), proof.encode()
    )


class _Wire:
    """One connection: it sends and receives whole lines, and calls once when it is over."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        on_message: Callable[[Message], None],
        over: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._on_message = on_message
        self._over = over
        self._rest = b""
        self._unsent = b""
        self._open = True
        self._longest = _LONGEST_HELLO
        self.received_ns = time.monotonic_ns()
        connection.setblocking(False)  # noqa: FBT003
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The loop closes the descriptor that it watches, so it gets its own.
        self._watched = os.dup(connection.fileno())
        loop.read(self._watched, self._read)

    def hand_over(self, on_message: Callable[[Message], None], over: Callable[[str], None]) -> None:
        """Call other functions from now on."""
        self._on_message, self._over = on_message, over

    @property
    def address(self) -> str:
        """The address of this side."""
        return str(self._connection.getsockname()[0])

    def trust(self) -> None:
        """The other side has authenticated."""
        self._longest = _LONGEST

    def send(self, message: Message) -> None:
        if self._open:
            self._unsent += encode(message) + b"\n"
            self.flush()

    def flush(self) -> None:
        """Send what the kernel takes now; the next beat sends the rest."""
        try:
            while self._open and self._unsent:
                self._unsent = self._unsent[self._connection.send(self._unsent) :]
        except BlockingIOError:
            if len(self._unsent) > 8 * _LONGEST:
                self._end("it reads nothing any more")
        except OSError as error:
            self._end(error.strerror or str(error))

    def finish(self) -> None:
        """Send the rest, for a few seconds at most, and close."""
        if self._open:
            self._connection.settimeout(_LINGER)
            try:
                self._connection.sendall(self._unsent)
                self._connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # a node that did not get it finds the link closed, and ends too
            self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.forget(self._watched)
            self._connection.close()

    def _end(self, why: str) -> None:
        if self._open:
            self.close()
            self._over(why)

    def _read(self) -> None:
        try:
            data = self._connection.recv(65_536)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error.strerror or str(error))
            return
        if not data:
            self._end("it closed the connection")
            return
        self.received_ns = time.monotonic_ns()
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self._longest:
            self._end("it sent a message that is too long")
            return
        for line in lines:
            if not self._open:
                return
            message = parse_object(line)
            if message is None:
                self._end("it sent a line that is not JSON")
                return
            self._on_message(message)


class _Guest:
    """A connection to agent 0 that has not authenticated yet."""

    def __init__(self, hub: Hub, connection: socket.socket) -> None:
        self._hub = hub
        self._nonce = os.urandom(16).hex()
        self._hello: Message | None = None
        self.came_ns = time.monotonic_ns()
        self.wire = _Wire(hub.loop, connection, self._on_message, lambda _: hub.forget(self))

    def _on_message(self, message: Message) -> None:
        if self._hello is None:
            self._hello = message
            answer = _proof(self._hub.key, "hub", message.get("nonce"), self._nonce)
            self.wire.send({"nonce": self._nonce, "proof": answer})
            return
        node = self._hello.get("node")
        proof = _proof(self._hub.key, "node", node, self._nonce, self._hello.get("nonce"))
        if not _proves(message.get("proof"), proof):
            self._refuse("it does not know the control key of this run")
        elif self._hello.get("spec") != self._hub.spec:
            self._refuse("its spec.json is another one")
        elif type(node) is not int or not 0 < node < self._hub.node.count:
            self._refuse(f"there is no node {node}: this run has {self._hub.node.count}")
        elif node in self._hub.members:
            self._refuse(f"node {node} has joined already")
        else:
            self._hub.admit(self, node)

    def _refuse(self, why: str) -> None:
        self.wire.send({"refused": why})
        self._hub.turn_away(self, why)


class _Member:
    """A node that takes part. `offset_ns` is its monotonic clock minus ours; None if unknown."""

    def __init__(self, hub: Hub, node: int, wire: _Wire) -> None:
        self._hub = hub
        self.node = node
        self.wire = wire
        self.offset_ns: int | None = None
        self._closest_ns = 0
        wire.trust()
        wire.hand_over(self._on_message, lambda why: hub.lose(self, why))

    def _on_message(self, message: Message) -> None:
        if "beat" not in message:
            self._hub.on_message(self.node, message)
            return
        sent, theirs = message["beat"], message.get("mono_ns")
        if isinstance(sent, int) and isinstance(theirs, int):
            round_trip = time.monotonic_ns() - sent
            if self.offset_ns is None or round_trip < self._closest_ns:
                self._closest_ns = round_trip
                self.offset_ns = theirs - (sent + round_trip // 2)


class Hub:
    """Agent 0's side. Set the callbacks, then `listen`."""

    on_complete: Callable[[], None]
    on_message: Callable[[int, Message], None]
    on_lost: Callable[[int, str], None]
    on_refused: Callable[[str], None]

    def __init__(self, loop: Loop, node: Node, *, key: str, spec: str) -> None:
        self.loop = loop
        self.node = node
        self.key = key.encode()
        self.spec = spec
        self.members: dict[int, _Member] = {}
        self._guests: dict[_Guest, None] = {}  # in the order in which they came
        self._refusals: dict[str, int] = {}
        self._listener = -1

    def listen(self) -> None:
        """Listen on agent 0's address, or on all addresses if this machine does not have it (it is
        then that of a machine which forwards).

        Raises:
            OSError: the port is taken, or the address is unknown.
        """
        family, kind, _, _, where = socket.getaddrinfo(
            self.node.address, self.node.port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)  # noqa: FBT003
        try:
            listener.bind(where)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            listener.bind(("", self.node.port))  # strangers lack the key
        listener.listen(1024)
        self._listener = os.dup(listener.fileno())
        self.loop.read(self._listener, lambda: self._accept(listener))
        self._beat()

    @property
    def address(self) -> str:
        """The address at which the nodes reach this one, of those that it may have."""
        return next(iter(self.members.values())).wire.address

    def send(self, message: Message) -> None:
        """Send a message to every node that is not lost."""
        for member in list(self.members.values()):
            member.wire.send(message)

    def offsets(self) -> dict[int, int | None]:
        """Return how far ahead each node's monotonic clock is, in ns."""
        return {member.node: member.offset_ns for member in self.members.values()}

    def close(self) -> None:
        self.loop.cancel("beat")
        self.loop.forget(self._listener)
        wires = [member.wire for member in self.members.values()]
        for wire in wires:
            wire.finish()
        for guest in self._guests:
            guest.wire.close()  # a guest may never read

    def forget(self, guest: _Guest) -> None:
        self._guests.pop(guest, None)

    def turn_away(self, guest: _Guest, why: str) -> None:
        """Close the connection of a guest that did not authenticate."""
        self.forget(guest)
        guest.wire.close()
        self._refusals[why] = self._refusals.get(why, 0) + 1
        if self._refusals[why] <= _MOST_REPORTS:
            self.on_refused(why)

    def admit(self, guest: _Guest, node: int) -> None:
        self.forget(guest)
        member = self.members[node] = _Member(self, node, guest.wire)
        member.wire.send({"welcome": True})
        member.wire.send({"beat": time.monotonic_ns()})
        if len(self.members) == self.node.count - 1:
            self.on_complete()

    def lose(self, member: _Member, why: str) -> None:
        if self.members.pop(member.node, None) is not None:
            self.on_lost(member.node, why)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # it has closed already, or no descriptor is left: it will come again
        if len(self._guests) >= self.node.count + _STRANGERS:
            oldest = next(iter(self._guests))  # a node that meets this comes again
            self.turn_away(oldest, "too many other connections came that did not authenticate")
        try:
            self._guests[_Guest(self, connection)] = None
        except OSError:
            connection.close()  # no descriptor is left, or it has closed already

    def _beat(self) -> None:
        now = time.monotonic_ns()
        for member in list(self.members.values()):
            silent = (now - member.wire.received_ns) / 1e9
            if silent > self.node.silence:
                member.wire.close()
                self.lose(member, f"it sent nothing for {silent:.0f} s")
                continue
            member.wire.send({"beat": time.monotonic_ns()})
        for guest in list(self._guests):
            if (now - guest.came_ns) / 1e9 > _HANDSHAKE:
                self.turn_away(guest, f"it did not authenticate within {_HANDSHAKE:g} s")
        self.loop.after("beat", _BEAT, self._beat)


class Link:
    """The side of every other agent. Set the callbacks, then `connect`."""

    on_joined: Callable[[], None]
    on_message: Callable[[Message], None]
    on_lost: Callable[[str], None]

    def __init__(self, loop: Loop, node: Node, *, key: str, spec: str) -> None:
        self._loop = loop
        self.node = node
        self._key = key.encode()
        self._spec = spec
        self._nonce = os.urandom(16).hex()
        self._wire: _Wire | None = None
        self._joined = False

    def connect(self, patience: float) -> None:
        """Reach agent 0, which may start later than this one; for `patience` seconds."""
        self._until = time.monotonic() + patience
        self._try()

    @property
    def address(self) -> str:
        """The address of this node that agent 0 sees."""
        return self._wire.address if self._wire is not None else ""

    def send(self, message: Message) -> None:
        if self._wire is not None:
            self._wire.send(message)

    def close(self) -> None:
        self._loop.cancel("link")
        if self._wire is not None:
            self._wire.finish()
            self._wire = None

    def _try(self) -> None:
        try:
            family, kind, _, _, where = socket.getaddrinfo(
                self.node.address, self.node.port, type=socket.SOCK_STREAM
            )[0]
            connection = socket.socket(family, kind)
        except OSError as error:
            self._later(error)
            return
        connection.setblocking(False)  # noqa: FBT003
        code = connection.connect_ex(where)
        if code not in (0, errno.EINPROGRESS):
            connection.close()
            self._later(OSError(code, os.strerror(code)))
            return
        watched = os.dup(connection.fileno())
        self._loop.write(watched, lambda: self._connected(watched, connection))
        self._loop.after("link", 5.0, lambda: self._connected(watched, connection))

    def _connected(self, watched: int, connection: socket.socket) -> None:
        self._loop.forget(watched)
        self._loop.cancel("link")
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        try:
            connection.getpeername()
        except OSError:
            code = code or errno.ETIMEDOUT
        if code:
            connection.close()
            self._later(OSError(code, os.strerror(code)))
            return
        self._wire = _Wire(self._loop, connection, self._on_message, self._over)
        self._wire.send({"node": self.node.number, "nonce": self._nonce, "spec": self._spec})
        self._watch()

    def _later(self, error: OSError) -> None:
        if time.monotonic() > self._until:
            where = f"{self.node.address}:{self.node.port}"
            self.on_lost(f"agent 0 was not reached at {where}: {error.strerror or error}")
        else:
            self._loop.after("link", _AGAIN, self._try)

    def _on_message(self, message: Message) -> None:
        wire = self._wire
        if wire is None:
            return
        if "beat" in message:
            wire.send({"beat": message["beat"], "mono_ns": time.monotonic_ns()})
        elif self._joined:
            self.on_message(message)
        elif "refused" in message:
            self._give_up(f"agent 0 refuses this node: {message['refused']}")
        elif "proof" in message:
            theirs = message.get("nonce")
            proof = _proof(self._key, "hub", self._nonce, theirs)
            if _proves(message["proof"], proof):
                wire.trust()
                proof = _proof(self._key, "node", self.node.number, theirs, self._nonce)
                wire.send({"proof": proof})
            else:
                self._give_up("the program that listens there is not agent 0 of this run")
        elif "welcome" in message:
            self._joined = True
            self.on_joined()

    def _give_up(self, why: str) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self._loop.cancel("link")
        self.on_lost(why)

    def _over(self, why: str) -> None:
        self._wire = None
        self._loop.cancel("link")
        if self._joined or time.monotonic() > self._until:
            self.on_lost(f"the connection to agent 0 is lost: {why}")
        else:
            self._loop.after("link", _AGAIN, self._try)

    def _watch(self) -> None:
        if self._wire is None:
            return
        silent = (time.monotonic_ns() - self._wire.received_ns) / 1e9
        if silent > self.node.silence:
            self._give_up(f"agent 0 sent nothing for {silent:.0f} s")
        else:
            self._wire.flush()
            self._loop.after("link", _BEAT, self._watch)
