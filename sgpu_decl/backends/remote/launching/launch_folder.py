"""Launch folders: what nodes are given, and what they bring back.

All paths are below the staging folder:

    objects/agent/SHA256.zip            `agent_zip`; the name is the SHA-256 of the bytes
    objects/code/SHA256.tar.gz          the code, by the digest of its list of files, with which
                                        nodes compare what they have extracted: `write_archive`
    objects/packs/                      packs and indexes, as `content.store.pack_writer`
                                        sends them, with each manifest
    runs/LINEAGE/RUN/ATTEMPT/           a launch folder, three levels below `runs`: `launch_files`

    inputs/NAME-N/                      below a launch folder: the output of another run that this
                                        one reads, brought there by whoever waited for it, unless
                                        each node has a folder for it: `NodeProgram.inputs`

Where the layout has a `command_root`, `launch_files` lie below that, at the same path; objects,
markers and what comes back lie below the staging folder all the same.

A backend starts the agent on each node, by what `NodeStart` says, with the table of its platform
(`agent.node.platform`) and the values of secrets in the environment. What nodes bring back lies in
the launch folder, for each attempt of the platform's own (it may start a failed run again) anew:

    back/N/node_K/ranks/R/output.json   and output.pkl, which it names relative to its own folder
    back/N/node_K/ranks/R/RESTART/      error.json, error.pkl
    back/N/node_K/output/               what ranks left in SGPU_OUTPUT_DIR; later attempts of the
                                        run with `resume` find it: `agent.node.earlier_output`
    back/N/node_K/parts/P/J             part J of the P-th file that is too large to be read whole
    back/N/node_K/events.log            and the end of agent.log, where the agent had something to
                                        say: for people
    back/N/node_K/report.json           last: how it ended there, and the digests of all files:
                                        `agent.node.node_report`. That of node 0 is the run's

N counts from 0 the attempts of the platform that got as far as a node. One that comes after a
failure which `retry` does not cover brings nothing back, of a job the same outcome, and ends with
the exit code of that.

The folder of a job is launched from again and again: N goes on counting, `back/N/first` says at
which N its launch began, and the newest `agent.node.platform_attempts.KEPT` stay.

On a node's stdout a line of a rank begins with `[rank 3] `, or `[rank 3 err] ` if it was written to
stderr, unless the platform's table has other marks; all other lines are the agent's own. Variables
of the run travel in `spec.json` alone.
"""

import hashlib
import posixpath
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Protocol

from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.backends.archives import agent_zip, rank_zip
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.launch_spec import SpecFolders, launch_spec, with_outputs, write_call
from sgpu_decl.backends.node_tracker import ARCHIVE, node_tracker
from sgpu_decl.backends.remote.staging.remote_layout import BACK, INPUTS, RemoteLayout
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.run_outputs import outputs_read
from sgpu_decl.rendering.spec import render_spec
from sgpu_decl.rendering.templates import render_air
from sgpu_decl.tracking.tracking_request import FILE

_PICKLES = ("func.pkl", "func.bin", "inputs.pkl", "inputs.bin")
FILES = frozenset({"spec.json", "_air.py", "rank.zip", *_PICKLES, ARCHIVE, FILE})
"""What a launch folder may hold for the ranks and the tracker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOutput:
    """An output of another run that each node brings to its own `folder`: that of the attempt
    `name`, whose `nodes` brought it back to the launch folder `launch`, relative to that of the run
    which reads it."""

    name: str
    launch: str
    nodes: int
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStart:
    """What a node's agent is started with: `python agent.zip node …`.

    `agent` is the SHA-256 of its archive, `files` that of each file in the launch folder, which
    nodes may see late. `launch` is the folder that these files lie in, `objects` that of shared
    objects, `back` that of what nodes bring back. `code` and `environment` are digests in hex, of
    what the run has of them. Nodes bring back what is larger than `part` bytes in parts.
    """

    agent: str
    files: Mapping[str, str]
    launch: str
    objects: str
    back: str
    code: str | None = None
    environment: str | None = None
    part: int | None = None
    outputs: tuple[ReadOutput, ...] = ()

    def arguments(self, run: str, platform: PlatformTable) -> list[str]:
        """The arguments of the archive on one node.

        Args:
            run: an empty folder of the node, which the agent deletes in the end.
            platform: what the platform calls things.
        """
        places = ("--launch", self.launch, "--objects", self.objects, "--back", self.back)
        options = (word for option in self.options(platform) for word in option)
        return ["node", "--run", run, *places, *options]

    def options(self, platform: PlatformTable) -> Iterator[tuple[str, ...]]:
        """Those arguments that are the same wherever the folders lie on a node."""
        if self.code is not None:
            yield "--code", self.code
        if self.environment is not None:
            yield "--environment", self.environment
        if self.part is not None:
            yield "--part", str(self.part)
        yield "--platform", platform.to_json()
        for one in self.outputs:
            yield "--input", one.name, one.launch, str(one.nodes), one.folder
        for name, digest in sorted(self.files.items()):
            yield "--file", name, digest


class NodeProgram(Protocol):
    """How a backend starts the agent on its nodes: the files that it adds to a launch folder."""

    makes_mlflow_runs: bool = False
    """Whether the platform makes the MLflow run of an attempt; else a tracker on node 0 does."""

    room: ModuleType | None = None
    """A package of the backend that its nodes find in the archive of the agent: see `agent_zip`."""

    @abstractmethod
    def nodes(self, request: LaunchRequest) -> int:
        """How many nodes a run gets; ranks are shared evenly."""

    def processors(self, request: LaunchRequest) -> int | None:  # noqa: ARG002
        """How many processors a run has on each node; None for those that it finds there."""
        return None

    def inputs(self, request: LaunchRequest) -> str | None:  # noqa: ARG002
        """The folder of each node with the outputs that its ranks read; None if somebody brings
        them to the launch folder before nodes start."""
        return None

    @abstractmethod
    def files(self, request: LaunchRequest, start: NodeStart) -> Mapping[str, bytes]:
        """Files of the backend's own in the launch folder, by name, such as the script that starts
        the agent. Raises BackendError where the backend cannot start this."""

    def lease_file(self, request: LaunchRequest) -> tuple[str, bytes] | None:  # noqa: ARG002
        """One of `files`, name and content, that can be uploaded before all others: it is the lease
        of a launch then. None for a lease of its own."""
        return None


def launch_files(
    request: LaunchRequest,
    program: NodeProgram,
    layout: RemoteLayout,
    folder: str,
    *,
    project: Path,
    root: Path,
    scratch: Path,
    code: Path | None = None,
    environment: str | None = None,
    part: int | None = None,
) -> dict[str, bytes | Path]:
    """Return the files of a launch folder by name: bytes, or where a large one lies.

    Args:
        folder: the launch folder.
        project: the folder of the project.
        root: the folder that the entrypoint is relative to.
        scratch: an empty folder for what a call takes along, to be kept until that is uploaded.
        code: a folder with the code as it is pinned, to read what ranks can import once; None for
            no warm start.
        environment: the digest of the environment's manifest, `sha256:…`, where one is declared.
        part: the size in bytes of parts in which large files come back; None for whole files.

    Raises:
        BackendError: the backend cannot start this.
        OSError: the scratch folder takes nothing.
    """
    nodes = program.nodes(request)
    call = request.call
    inputs = program.inputs(request)
    told = with_outputs(request, lambda ref: input_folder(inputs or f"{folder}/{INPUTS}", ref))
    spec = launch_spec(
        # The caller's folders are not on any node.
        replace(told, call=replace(call, path=())) if call is not None else told,
        root=root,
        code=code,
        folders=SpecFolders(),
        python="environment/tree/bin/python" if environment is not None else "python3",
        nodes=nodes,
        processors=program.processors(request),
    )
    tracker = None
    if not program.makes_mlflow_runs:
        tracker = node_tracker(request, project=project, python=spec.python)
    if tracker is not None:
        spec = replace(spec, tracker=tracker.spec)
    raw = render_spec(spec)
    files: dict[str, bytes | Path] = {
        "spec.json": raw,
        "_air.py": render_air(_sha256(raw), spec.entry).encode(),
    }
    if spec.runs_python:
        files["rank.zip"] = rank_zip(compiled=False)
    if tracker is not None:
        files |= tracker.files
    if call is not None:
        write_call(scratch, call)
        files |= {name: scratch / name for name in _PICKLES if (scratch / name).exists()}
    start = NodeStart(
        agent=agent_zip(program.room)[0],
        files={name: _sha256(content) for name, content in files.items()},
        launch=layout.commands(folder),
        objects=layout.objects,
        back=f"{folder}/{BACK}",
        code=_hex(request.inputs.code_digest),
        environment=_hex(environment),
        part=part,
        outputs=() if inputs is None else _outputs(request, program, layout, folder, inputs),
    )
    return {**files, **program.files(request, start)}


def input_folder(inputs: str, ref: AttemptRef) -> str:
    """Where a launch finds the output of an attempt of another run, in the folder of all these."""
    return f"{inputs}/{ref.address.name}-{ref.number}"


def _outputs(
    request: LaunchRequest, program: NodeProgram, layout: RemoteLayout, folder: str, inputs: str
) -> tuple[ReadOutput, ...]:
    """What nodes of a launch with that launch folder bring to their folder `inputs`."""
    read = outputs_read(request.inputs.spec)
    return tuple(
        ReadOutput(
            name=str(upstream.ref),
            launch=posixpath.relpath(layout.launch(upstream), folder),
            nodes=program.nodes(LaunchRequest(record=upstream)),
            folder=input_folder(inputs, upstream.ref),
        )
        for upstream in request.after
        if upstream.ref in read
    )


def _hex(digest: str | None) -> str | None:
    return digest.removeprefix("sha256:") if digest is not None else None


def _sha256(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
