"""Variables that ranks need, and that the platform does not set on its nodes."""

from __future__ import annotations

import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from sgpu_decl.agent.node.platform import PlatformTable
    from sgpu_decl.agent.several_nodes.node_group import Node

_GET_ADDRESS = 0x8915  # SIOCGIFADDR of <linux/sockios.h>
_INET6 = "/proc/net/if_inet6"
_ANY_PORT = 9  # nothing is sent there


def fill_missing_variables(
    environ: MutableMapping[str, str], node: Node, platform: PlatformTable
) -> None:
    """Add missing variables; those of the platform or the image stay.

    `MLFLOW_TRACKING_URI`: without it, MLflow would write the run to a folder of the node.
    `GLOO_SOCKET_IFNAME`: gloo uses the address of the hostname, and nodes may all have the same.
    """
    if platform.mlflow_uri and platform.run_id(environ):
        environ["MLFLOW_TRACKING_URI"] = environ.get("MLFLOW_TRACKING_URI") or platform.mlflow_uri
    if node.count > 1 and "GLOO_SOCKET_IFNAME" not in environ:
        interface = interface_to(node.address)
        if interface is not None:
            environ["GLOO_SOCKET_IFNAME"] = interface


def interface_to(address: str) -> str | None:
    """Return the network interface that leads to an address; `None` if there is none, or if its
    name is unknown."""
    try:
        own = address_towards(address)
        return _of_address(socket.AF_INET6 if ":" in own else socket.AF_INET, own)
    except OSError:
        return None


def address_towards(address: str) -> str:
    """Return the address that this machine has on the way to another one.

    Raises:
        OSError: there is no way, or the name is unknown.
    """
    family, kind, number, _, target = socket.getaddrinfo(
        address, _ANY_PORT, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind, number) as probe:
        probe.connect(target)  # for datagrams, this only looks up the route
        return str(probe.getsockname()[0]).partition("%")[0]


def _of_address(family: int, own: str) -> str | None:
    address = socket.inet_pton(family, own)
    if family == socket.AF_INET6:
        with open(_INET6, encoding="ascii") as file:
            rows = [line.split() for line in file]
        return next((row[5] for row in rows if bytes.fromhex(row[0]) == address), None)
    from fcntl import ioctl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = ioctl(probe, _GET_ADDRESS, struct.pack("256s", os.fsencode(name)[:15]))
            except OSError:  # it has no address
                continue
            if answer[20:24] == address:
                return name
    return None
