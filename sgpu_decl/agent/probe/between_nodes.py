"""What nodes can do together: names, ports, collectives."""

from __future__ import annotations

import socket
import sys
import time

from sgpu_decl.agent.host.interfaces import interface_to
from sgpu_decl.agent.probe.libraries import COLLECTIVE, run_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sgpu_decl.agent.several_nodes.node_group import Node

_SLOWEST = 300.0  # seconds in which the libraries of another node answer


class Meeting:
    """A TCP port of node 0 at which all other nodes arrive, within `patience` seconds."""

    def __init__(self, node: Node, port: int, patience: float) -> None:
        self._node = node
        self._patience = patience
        self._links: list[socket.socket] = []
        self.port = port
        self.result: dict[str, Any] = {"port": port}
        start = time.monotonic()
        try:
            if node.number == 0:
                self._listen()
            else:
                self._links.append(_reached(node.address, port, patience))
        except OSError as error:
            self.result["error"] = f"{type(error).__name__}: {error}"
        self.result |= {
            "open": "error" not in self.result, "seconds": round(time.monotonic() - start, 2),
        }  # fmt: skip

    def agree(self) -> None:
        """Wait until all nodes call this. Raises OSError: one has gone."""
        for link in self._links:
            link.sendall(b"!")
        for link in self._links:
            link.settimeout(_SLOWEST)
            if link.recv(1) != b"!":
                raise ConnectionError("another node has gone")

    def close(self) -> None:
        """Close the connections; the port is free again."""
        for link in self._links:
            # An ordinary close keeps the port for a minute; a reset does not.
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            link.close()

    def _listen(self) -> None:
        node = self._node
        with socket.create_server(("", self.port), backlog=node.count) as listener:
            listener.settimeout(self._patience)
            for _ in range(node.count - 1):
                self._links.append(listener.accept()[0])


def _reached(address: str, port: int, patience: float) -> socket.socket:
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection((address, port), timeout=min(10.0, patience))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def position(node: Node) -> dict[str, Any]:
    """Return which node this is, and its names."""
    return {
        "number": node.number,
        "count": node.count,
        "address": node.address,
        "port": node.port,
        "hostname": socket.gethostname(),
        "interface": interface_to(node.address),
    }


def collectives(node: Node, port: int, environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Run one all-reduce by gloo and one by NCCL, with the torch of the node's own Python."""
    answers = {}
    for shift, backend in enumerate(("gloo", "nccl")):
        arguments = [
            backend,
            str(node.number),
            str(node.count),
            node.address,
            str(port + 2 * shift),
        ]
        answers[backend] = run_program(sys.executable, COLLECTIVE, arguments, environ)
    return answers
