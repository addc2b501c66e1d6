"""Outputs of other runs that ranks of a node read (`${run.NAME.output}`), where no machine can copy
them for all nodes before these start: each node copies them to its own folder."""

from __future__ import annotations

import os

from sgpu_decl.agent.node.earlier_output import UpstreamFailed, await_output, copy_output
from sgpu_decl.agent.node.input_folder import InputFolder
from sgpu_decl.agent.node.log_forwarding import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sgpu_decl.agent.node.stop_request import StopRequest

_LOOK = 0.1  # seconds between two looks at what another node of this machine fills


class NodeInputs:
    """The inputs of one run on this node.

    Args:
        back: the folder that nodes of the run upload to. Launch folders are named relative to its
            own: nodes may have them at another path than the machine of apply.
    """

    def __init__(self, back: str, stopping: StopRequest) -> None:
        self._launch = os.path.dirname(back)
        self._back = os.path.basename(back)
        self._stopping = stopping
        self._folder: InputFolder | None = None

    def bring(self, inputs: Sequence[Sequence[str]]) -> tuple[str, str] | None:
        """Have all inputs here; if that fails, return the class of the failure and the reason. If
        the node was asked to stop meanwhile, there may be none.

        Args:
            inputs: of each the name of the attempt, its launch folder, how many nodes it had, and
                the folder that ranks read. All these are in one folder.
        """
        folder = self._folder = InputFolder(os.path.dirname(inputs[0][3]))
        try:
            while not self._stopping.asked:
                if folder.take() and self._fill(inputs):
                    folder.finish()
                if folder.lock is not None:
                    return None
                self._stopping.wait(_LOOK)
        except UpstreamFailed as error:
            problem = error.failure, error.summary
        except OSError as error:
            problem = "staging_failed", f"`{folder.path}` cannot be made on this node: {error}"
        else:
            return None
        self.release()  # another node of this machine may get further
        return problem

    def release(self) -> None:
        """The ranks of this node have ended."""
        if self._folder is not None:
            self._folder.release()

    def _fill(self, inputs: Sequence[Sequence[str]]) -> bool:
        """Copy all inputs; False if the node was asked to stop meanwhile. Raises UpstreamFailed."""
        for name, launch, nodes, target in inputs:
            say(f"copying the output of {name}")
            back = os.path.join(os.path.normpath(os.path.join(self._launch, launch)), self._back)
            if not await_output(
                name,
                back,
                nodes=int(nodes),
                stopped=lambda: self._stopping.asked,
                wait=self._stopping.wait,
                say=say,
            ):
                return False
            copy_output(name, back, target)
        return True
