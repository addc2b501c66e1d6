"""What nodes have in common."""

import signal
from collections.abc import Iterator

import pytest

from sgpu_decl.agent.node.stop_request import StopRequest


@pytest.fixture
def stopping() -> Iterator[StopRequest]:
    """It handles signals of this process, which are given back."""
    handled = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in handled]
    yield StopRequest()
    for number, handler in zip(handled, before, strict=True):
        signal.signal(number, handler)
