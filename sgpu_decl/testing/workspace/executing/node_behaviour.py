"""How nodes behave in a workspace with a profile, where that is not as sgpu expects it."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.model.assumptions import PLATFORM_VARIABLES, Profile
from sgpu_decl.testing.workspace.executing.endings import TABLE, AttemptEnding

__all__ = ["NodeBehaviour"]

_NOWHERE = "192.0.2.1"  # of RFC 5737, for documentation: no machine has it


@dataclass(frozen=True, slots=True)
class NodeBehaviour:
    """By the profile of a workspace."""

    profile: Profile

    def argv(self, argv: tuple[str, ...], command: Path) -> tuple[str, ...]:
        """The program of a node.

        Args:
            argv: what it would be.
            command: the script that it names, on the disk here.
        """
        if not self.profile.flag("node-bash-source"):
            argv = (*argv[:-1], "-c", command.read_text())
        return argv

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables of a node, from those that it would have."""
        found = dict(given)
        if "node-variables" in self.profile.found:
            wanted = self.profile.texts("node-variables")
            found = {
                name: value
                for name, value in found.items()
                if name in wanted or not name.startswith(PLATFORM_VARIABLES)
            }
        for id_, change in _IF_NOT.items():
            if not self.profile.flag(id_):
                found |= change
        return found

    def ending(self, ending: AttemptEnding) -> AttemptEnding:
        """How an attempt is said to have ended."""
        code = self.profile.text("user-failure-code")
        if ending is not AttemptEnding.FAILED or TABLE[ending].code == code:
            return ending
        others = (
            item for item, said in TABLE.items() if said.code == code and said.result == "FAILED"
        )
        return next(others, ending)

    @property
    def read_only(self) -> tuple[str, ...]:
        """The folders of a node that take nothing."""
        return () if self.profile.flag("back-writable") else ("/Workspace",)

    def grace(self, usual: float) -> float:
        """Seconds between SIGTERM and SIGKILL."""
        measured = self.profile.found.get("cancel-grace-seconds")
        return usual if measured is None else float(str(measured))

    def asks_to_stop(self, ending: AttemptEnding) -> bool:
        """Whether nodes get SIGTERM first, when an attempt ends that way."""
        id_ = (
            "cancel-sends-term" if ending is AttemptEnding.CANCELLED else "failed-node-stops-others"
        )
        return self.profile.flag(id_)

    @contextmanager
    def ports(self, master: int, nodes: int) -> Iterator[None]:
        """Have the port beside that of the master as the profile says while nodes run."""
        if nodes == 1 or self.profile.flag("node-ports"):
            yield
            return
        with socket.socket() as taken:  # it listens to nobody
            taken.bind(("", master + 1))
            yield


_IF_NOT: Mapping[str, Mapping[str, str]] = {
    "node-address": {"MASTER_ADDR": _NOWHERE},
    "node-gloo": {"GLOO_SOCKET_IFNAME": "sgpu-none0"},
    "node-index": {"PIP_NO_INDEX": "1"},
    "node-mlflow": {"MLFLOW_TRACKING_URI": "databricks://sgpu-none"},
}
"""What variables are where a profile says no."""
