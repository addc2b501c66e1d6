"""Connections of node actors to the driver. Each ends with the process at its other end, whoever
kills that.

An actor first sends its number and a secret of the driver, so nobody else takes its place.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER = 4  # bytes
_SECRET = 16
_STRANGERS = 100  # connections of others that may wait beside those of the actors
_GREETING = 2.0  # seconds that a connection may be silent: an actor sends at once


class ActorConnections:
    """The driver's end. `address` is where it listens, `greetings` is what each of `count` actors
    sends first."""

    def __init__(self, host: str, count: int) -> None:
        self._server = socket.create_server((host, 0), backlog=count + _STRANGERS)
        self._secret = secrets.token_bytes(_SECRET)
        self._accepted: dict[int, socket.socket] = {}
        self._count = count

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._server.getsockname()[:2]
        return host, port

    @property
    def greetings(self) -> Sequence[bytes]:
        return [number.to_bytes(_NUMBER, "big") + self._secret for number in range(self._count)]

    def accept(self, patience: float) -> list[int]:
        """Accept the connections of all actors; return the numbers of those that did not connect
        in `patience` seconds. Other connections are closed."""
        deadline = time.monotonic() + patience
        while len(self._accepted) < self._count and (left := deadline - time.monotonic()) > 0:
            self._server.settimeout(left)
            try:
                connection = self._server.accept()[0]
            except TimeoutError:
                break
            number = self._number_of(connection)
            if number is None or number in self._accepted:
                connection.close()
            else:
                self._accepted[number] = connection
        self._server.close()
        return [number for number in range(self._count) if number not in self._accepted]

    def close(self) -> None:
        self._server.close()
        for connection in self._accepted.values():
            connection.close()

    def _number_of(self, connection: socket.socket) -> int | None:
        """The number of the actor that connected; None if it is no actor of this driver."""
        connection.settimeout(_GREETING)
        try:
            with connection.makefile("rb") as file:
                greeting = file.read(_NUMBER + _SECRET)
        except OSError:
            return None
        for number, expected in enumerate(self.greetings):
            if hmac.compare_digest(greeting, expected):
                return number
        return None
