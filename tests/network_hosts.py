"""Two hosts with a network between them, each a network namespace of this machine."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["connected_hosts", "on_host", "two_hosts"]

_NAMESPACES = Path("/run/netns")  # where `ip netns` keeps them, see ip-netns(8)


@contextmanager
def connected_hosts() -> Iterator[tuple[str, str, str]]:
    """Two network namespaces and a cable; yields their names and the first address. The test is
    skipped where the machine does not allow them."""
    names = [f"sgpu{os.getpid()}{side}" for side in "ab"]
    steps = [
        *(["ip", "netns", "add", name] for name in names),
        ["ip", "link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0",
         "netns", names[1]],
        *(["ip", "-n", name, "addr", "add", f"10.77.0.{last}/24", "dev", "eth0"]
          for last, name in enumerate(names, 1)),
        *(["ip", "-n", name, "link", "set", link, "up"]
          for name in names for link in ("eth0", "lo")),
    ]  # fmt: skip
    try:
        for step in steps:
            try:
                subprocess.run(step, check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"this machine allows no network namespaces: {error}")
        yield names[0], names[1], "10.77.0.1"
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture
def two_hosts() -> Iterator[tuple[str, str, str]]:
    """Two hosts for one test, which may cut the cable."""
    with connected_hosts() as hosts:
        yield hosts


@contextmanager
def on_host(name: str) -> Iterator[None]:
    """Have this thread use the network of a host, with the threads and processes that it starts."""
    with open("/proc/thread-self/ns/net") as before, open(_NAMESPACES / name) as host:
        _enter(host.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(namespace: int) -> None:
    """Call setns(2); Python has it from 3.12 on."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "setns")
