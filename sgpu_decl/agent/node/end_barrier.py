"""The end of a node that failed: a platform stops all nodes once the first ends like that, so each
waits until the others have brought back what they have, too."""

from __future__ import annotations

import os
import time

from sgpu_decl.agent.node.upload import DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.agent.node.stop_request import StopRequest

__all__ = ["await_others"]

_PATIENCE = 20.0  # seconds: one of them may be gone, and what it did appears here late
_OFTEN = 0.1


def await_others(target: str, nodes: int, stopping: StopRequest) -> None:
    """Wait until all nodes of an attempt are done, for as long as it may take, or until this one is
    asked to stop.

    Args:
        target: where this node brought things to: `…/node_K`.
    """
    above = os.path.dirname(target)
    folders = [os.path.join(above, f"node_{number}") for number in range(nodes)]
    deadline = time.monotonic() + _PATIENCE
    while not all(os.path.exists(os.path.join(folder, DONE)) for folder in folders):
        if stopping.asked or time.monotonic() > deadline:
            return
        stopping.wait(_OFTEN)
