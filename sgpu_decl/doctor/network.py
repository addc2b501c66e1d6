"""Ports, loopback and host names, by which ranks on one machine find each other."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from sgpu_decl.agent.host import ports
from sgpu_decl.agent.system import host_locks
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn

_SAMPLE = 64  # ports
_PATIENCE = 1.0  # seconds, for a connection and for the name server
_LOOPBACK = "127.0.0.1"
_INFINIBAND = Path("/sys/class/infiniband")


def check_network() -> Iterator[Finding]:
    yield from _ports()
    yield _loopback()
    yield from _names()


def has_infiniband() -> bool:
    """Whether this machine has an InfiniBand adapter."""
    return _INFINIBAND.is_dir() and any(_INFINIBAND.iterdir())


def _ports() -> Iterator[Finding]:
    span = ports.port_range()
    text = f"{span[0]} to {span[-1]}"
    sample = span[:: len(span) // _SAMPLE]
    free = sum(ports.can_bind(port) for port in sample)
    if free == 0:
        text = f"none of {len(sample)} ports from {text} is free"
        yield fail("ports", text, "see what listens: `ss -ltn`")
    elif ports.lowest_ephemeral() <= span[-1]:
        yield warn(
            "ports",
            f"outgoing connections use ports from {ports.lowest_ephemeral()} on, and ranks meet at "
            f"a port from {text}: it is sometimes taken",
            "`sudo sysctl net.ipv4.ip_local_port_range='32768 60999'`",
        )
    else:
        yield ok("ports", f"{free} of {len(sample)} tried ports from {text} are free")
    try:
        home, taken = host_locks.host_lock_home(), host_locks.taken_folder()
    except OSError as error:
        yield fail("ports", f"locks of ports and GPUs have no folder: {error}", None)
        return
    if taken is not None:
        yield warn(
            "ports",
            f"`{taken}` can be changed by other users, so the locks of ports and GPUs lie in "
            f"`{home}`",
            "have it removed if nobody needs it",
        )


def _loopback() -> Finding:
    try:
        with socket.create_server((_LOOPBACK, 0)) as listener:
            socket.create_connection(listener.getsockname(), timeout=_PATIENCE).close()
    except OSError as error:
        return fail(
            "loopback",
            f"no connection to `{_LOOPBACK}`: {error.strerror or error}",
            "bring the interface up: `sudo ip link set lo up`; ranks on one machine meet there",
        )
    return ok("loopback", f"`{_LOOPBACK}` takes connections")


def _names() -> Iterator[Finding]:
    name = socket.gethostname()
    local = _resolved("localhost")
    if local is None or _LOOPBACK not in local:
        yield fail(
            "hostname",
            "`localhost` is not 127.0.0.1",
            "add `127.0.0.1 localhost` to `/etc/hosts`",
        )
    addresses = _resolved(name)
    if addresses:
        yield ok("hostname", f"`{name}` is {', '.join(sorted(addresses))}")
    else:
        yield warn(
            "hostname",
            f"`{name}` does not resolve within {_PATIENCE:g} s: programs that look it up wait, "
            "and gloo listens on loopback alone, where no other machine reaches it",
            f"add `127.0.1.1 {name}` to `/etc/hosts`",
        )


def _resolved(name: str) -> set[str] | None:
    """The addresses of a name; `None` if there are none in time. The thread that asks may wait
    longer than that for its answer, and ends with this process at the latest."""
    answers: list[set[str]] = []

    def ask() -> None:
        try:
            answers.append({str(item[4][0]) for item in socket.getaddrinfo(name, None)})
        except OSError:
            return

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    asker.join(_PATIENCE)
    return answers[0] if answers else None
