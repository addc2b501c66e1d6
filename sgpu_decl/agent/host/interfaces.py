"""The network interface by which this machine reaches the other nodes of a run."""

from __future__ import annotations

import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

_GET_ADDRESS = 0x8915  # SIOCGIFADDR of <linux/sockios.h>
_INET6 = "/proc/net/if_inet6"
_ANY_PORT = 9  # nothing is sent there


def name_interface(environ: MutableMapping[str, str], address: str) -> None:
    """Set `GLOO_SOCKET_IFNAME`, unless it is set, to the interface that leads to an address of the
    run: gloo takes the address of the hostname, which may be the same on all nodes, or that of the
    loopback interface. Source: https://docs.pytorch.org/docs/stable/distributed.html
    (common environment variables)."""
    if "GLOO_SOCKET_IFNAME" not in environ:
        interface = interface_to(address)
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
