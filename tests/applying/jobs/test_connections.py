"""A session in a notebook or a server: what it leaves open once it is closed."""

import gc
import os
from collections.abc import Iterator

import pytest

from tests.applying.jobs.conftest import JOB, Shop
from tests.support import until

STATE = "project: {name: p}\nstate: {kind: databricks, path: /Workspace/Shared/states}\n"


@pytest.fixture
def _without_collector() -> Iterator[None]:
    """Python's collector closes connections too, some time."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize(("state", "clients"), [("", 1), (STATE, 3)], ids=["own", "shared"])
def test_a_closed_session_closes_its_connections_to_a_workspace(
    shop: Shop, state: str, clients: int
) -> None:
    shop.api("POST", "0/workspace/mkdirs", {"path": "/Workspace/Shared/states"})
    shop.write(state + JOB)
    before = _sockets()
    with shop.session() as session:
        session.apply(session.plan())
        opened = len(_sockets() - before)
    # The `Config` of each client of the SDK asks for `/.well-known/databricks-config`, and keeps
    # that connection itself. A state has two clients. The workspace is in this process: each
    # connection is two sockets.
    until(lambda: len(_sockets() - before) <= 2 * clients, lambda: _sockets() - before)
    assert opened > 2 * clients


def _sockets() -> set[str]:
    """The sockets of this process."""
    found = set()
    for entry in os.scandir("/proc/self/fd"):
        try:
            found.add(os.readlink(entry.path))
        except FileNotFoundError:  # closed meanwhile
            continue
    return {name for name in found if name.startswith("socket:")}
