"""The connections of node actors to their driver."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from sgpu_decl.backends.ray.cluster.actor_connections import ActorConnections

HOST = "127.0.0.1"


Connect = Callable[[ActorConnections, bytes], socket.socket]


@pytest.fixture
def connected() -> Iterator[Connect]:
    with ExitStack() as stack:

        def connect(connections: ActorConnections, greeting: bytes) -> socket.socket:
            connection = socket.create_connection(connections.address, timeout=10)
            connection.sendall(greeting)
            return stack.enter_context(connection)

        yield connect


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_actors_are_known_in_whatever_order_they_connect(connected: Connect) -> None:
    connections = ActorConnections(HOST, 2)
    first, second = connections.greetings
    actors = [connected(connections, greeting) for greeting in (second, first)]

    assert connections.accept(10) == []

    connections.close()
    assert all(is_closed(actor) for actor in actors)


def test_a_stranger_takes_the_place_of_no_actor(connected: Connect) -> None:
    connections = ActorConnections(HOST, 2)
    first, second = connections.greetings
    strangers = [connected(connections, greeting) for greeting in (b"x" * len(first), first[:4])]
    strangers[1].shutdown(socket.SHUT_WR)
    actors = [connected(connections, greeting) for greeting in (first, second)]
    strangers.append(connected(connections, second))  # an actor connects once

    assert connections.accept(10) == []
    assert all(is_closed(stranger) for stranger in strangers[:2])

    connections.close()
    assert all(is_closed(actor) for actor in actors)


def test_an_actor_that_does_not_connect_is_named(connected: Connect) -> None:
    connections = ActorConnections(HOST, 2)
    actor = connected(connections, connections.greetings[0])

    assert connections.accept(0.2) == [1]

    connections.close()
    assert is_closed(actor)
