"""Where launches lie, and what they share, below a staging folder."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sgpu_decl.backends.remote.launching.remote_reference import reference_in
from sgpu_decl.content.code_tree import archive_name
from sgpu_decl.content.packs import index_name
from sgpu_decl.model.address import Kind
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.launch import LaunchRecord

BACK = "back"
"""What nodes bring back to a launch folder lies below it."""

INPUTS = "inputs"
"""The outputs of other runs that a launch reads lie below it."""

LOGS = "logs"
"""The logs of nodes lie below it, where the platform does not keep them."""

MARKER = "submitted.json"
"""The file that says what a launch folder became, and which shared objects it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Which shared objects a launch needs: digests of its code, of the agent, of the manifest of
    its environment. The marker says it. Of a launch that was destroyed all are None."""

    agent: str | None = None
    code: str | None = None
    environment: str | None = None


def render_marker(uses: Uses | Mapping[str, Json], **facts: Json) -> bytes:
    """The marker of a launch that needs these objects, with facts of the backend's own, such as the
    id of the run that it became. Of one that this process staged it says that nodes will write
    reports (`agent.node.node_report`): nobody has to look for the files of version 0.1."""
    if not isinstance(uses, Uses):
        return canonical({**facts, "uses": uses}).encode()
    return canonical({**facts, "uses": asdict(uses), "reports": True}).encode()


def uses_in(marker: bytes) -> Uses | None:
    """What a marker says; None where it is of another version, and may need anything."""
    try:
        uses: dict[str, Any] = json.loads(marker)["uses"]
        return Uses(**uses)
    except (ValueError, KeyError, TypeError):
        return None


def without_uses(marker: bytes) -> bytes:
    """The same marker for a launch that needs no shared object any more. One that is damaged says
    nothing else."""
    try:
        known = json.loads(marker)
    except ValueError:
        known = None
    facts: dict[str, Json] = known if isinstance(known, dict) else {}
    return canonical({**facts, "uses": {}}).encode()


@dataclass(frozen=True, slots=True)
class RemoteLayout:
    """A staging folder, `root`: launch folders, and shared objects by content. `command_root` is a
    folder elsewhere for what a platform starts on nodes, where it takes that from there alone."""

    root: str
    command_root: str | None = None

    def lineage(self, lineage: str) -> str:
        """The folder of all launches of one state."""
        return f"{self.runs}/{lineage[:8]}"

    def run(self, launch: LaunchRecord) -> str:
        """The folder of all launches of one run, or of all versions of what the tasks of a job
        launch."""
        address = launch.ref.address
        name = f"job.{address.name}" if address.kind is Kind.JOB else address.folder
        return f"{self.lineage(launch.lineage)}/{name}"

    def launch(self, launch: LaunchRecord) -> str:
        """The launch folder; a job has one for all its launches. The reference of a launch that was
        begun has it: its name is that of the run when it was launched, below the staging folder of
        whoever launched it."""
        if launch.reference is not None:
            return reference_in(launch.reference).folder
        job = launch.ref.address.kind is Kind.JOB
        name = launch.token[-16:] if job else f"{launch.ref.number}-{launch.token[:8]}"
        return f"{self.run(launch)}/{name}"

    def lease(self, launch: LaunchRecord) -> str:
        """The folder of the lease of several launches, the first of which is this one. gc sees it
        among the launch folders. No run has a name with a dot."""
        return f"{self.lineage(launch.lineage)}/.leases/{launch.token[:16]}"

    def commands(self, launch: str) -> str:
        """Where the command of a launch lies, with its spec: in the launch folder, or at the same
        path below `command_root`."""
        if self.command_root is None:
            return launch
        return f"{self.command_root}{launch.removeprefix(self.runs)}"

    def around(self, commands: str) -> "RemoteLayout":
        """The layout of the launch whose command lies in a folder: it may be that of another user,
        who has a staging folder or a folder of commands of their own."""
        if self.command_root is None:
            return RemoteLayout(self.root_around(commands))
        return RemoteLayout(self.root, commands.rsplit("/", 3)[0])

    @staticmethod
    def root_around(launch: str) -> str:
        """The root that a launch folder lies below, perhaps of another staging folder."""
        return launch.rsplit("/", 4)[0]

    @property
    def runs(self) -> str:
        """The folder that launch folders lie below."""
        return f"{self.root}/runs"

    @property
    def objects(self) -> str:
        """The folder of what launches share."""
        return f"{self.root}/objects"

    @property
    def codes(self) -> str:
        """The folder of archives of code."""
        return f"{self.objects}/code"

    def code(self, digest: str) -> str:
        """An archive of code, by the digest of its manifest."""
        return f"{self.codes}/{archive_name(digest)}"

    def agent(self, digest: str) -> str:
        """The node agent, by its own SHA-256."""
        return f"{self.agents}/{_hex(digest)}.zip"

    @property
    def agents(self) -> str:
        """The folder of node agents."""
        return f"{self.objects}/agent"

    @property
    def packs(self) -> str:
        """The folder of packed environments."""
        return f"{self.objects}/packs"

    def shared(self, uses: Uses) -> tuple[str, ...]:
        """What a launch needs beside its folder. An environment is known by its index, which is
        sent last."""
        return (
            *((self.agent(uses.agent),) if uses.agent else ()),
            *((self.code(uses.code),) if uses.code else ()),
            *((f"{self.packs}/{index_name(uses.environment)}",) if uses.environment else ()),
        )


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")
