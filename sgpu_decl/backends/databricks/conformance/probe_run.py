"""One run of a probe in a workspace: staged, submitted, watched, cancelled and removed.

It is launched like any run: the node agent is uploaded, `command.sh` fetches it, and `runs/submit`
gets the body that the engine makes. There are two differences: `command.sh` starts the program
`probe` of the agent and not `node`, and all files are in one folder, which is deleted at the end.
"""

import json
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.agent.probe.probe_report import LINE
from sgpu_decl.backends.archives import agent_zip
from sgpu_decl.backends.databricks.api.sdk_errors import UNSURE, Rejected
from sgpu_decl.backends.databricks.conformance.probe_tree import pack_tree
from sgpu_decl.backends.databricks.launching.submit import (
    DEFAULT_BASE,
    StagedLaunch,
    submit_request,
)
from sgpu_decl.backends.databricks.launching.workspace_node_program import (
    platform_table,
    secret_sidecar,
)
from sgpu_decl.backends.databricks.watching.run_cache import OFTEN
from sgpu_decl.backends.databricks.watching.run_part import RunPart
from sgpu_decl.backends.databricks.watching.termination import state_of
from sgpu_decl.backends.databricks.watching.workspace_logs import WorkspaceLog
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.config.run import RunConfig
from sgpu_decl.errors import BackendError, NotFound
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.jsonable import Json
from sgpu_decl.places.file_place import PlaceMissing
from sgpu_decl.rendering.templates import render
from sgpu_decl.scratch_folders import scratch_folder

Record = dict[str, Any]

_PAUSE = 0.25  # seconds between two looks
_ENDING = 300.0  # seconds that a cancelled run may take to end
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What one run does: `name` is one that `agent.probe.probe_program` knows, `seconds` for it,
    `limit` for the whole run on the platform."""

    name: str
    seconds: float
    limit: int
    nodes: int = 1
    retries: int = 0
    secret: str | None = None
    base: str | None = None
    tree: bool = False


class ProbeRun:
    """One act in a folder of its own below `folder`."""

    def __init__(self, workspace: Workspace, act: Act, folder: str, token: str) -> None:
        self._workspace = workspace
        self._act = act
        self._token = f"{token}-{act.name}"
        self._folder = f"{folder}/{act.name}"
        self._commands = workspace.area.layout.commands(self._folder)
        self._back = f"{self._folder}/back"
        self._ref = AttemptRef(Address.parse(f"run.sgpu-doctor-{act.name}"), 1)
        self._body: dict[str, Json] = {}
        self._run_id: int | None = None

    @property
    def name(self) -> str:
        return self._act.name

    @property
    def run_id(self) -> int:
        """The run that it became. Raises RuntimeError: it was not submitted."""
        if self._run_id is None:
            raise RuntimeError("a probe is submitted before it is watched")
        return self._run_id

    def begin(self) -> None:
        """Stage and submit it. Raises BackendError."""
        self._stage()
        try:
            self._submit()
        except BackendError as error:
            if error.code not in UNSURE:
                self._body = {}  # there is no run
            raise

    def _stage(self) -> None:
        workspace, act = self._workspace, self._act
        digest, agent = agent_zip()
        objects = f"{self._folder}/objects"
        config = _config(act, self._token)
        workspace.make_experiment_folder(config)
        for folder in (f"{objects}/agent", self._back):
            workspace.area.files.make_folder(folder)
        workspace.area.command_files.make_folder(self._commands)
        workspace.area.files.put(f"{objects}/agent/{digest}.zip", agent)
        if act.secret is not None:
            secrets = json.dumps(secret_sidecar(config.env.secrets)).encode()
            workspace.area.command_files.put(f"{self._commands}/secret_env_vars.json", secrets)
        command = render_probe(
            digest,
            act.name,
            launch=self._commands,
            objects=objects,
            out=self._back,
            platform=platform_table(),
            seconds=act.seconds,
            secret=SECRET if act.secret is not None else "",
            environment=self._pack(f"{objects}/packs") if act.tree else "",
        )
        workspace.area.command_files.put(f"{self._commands}/command.sh", command.encode())
        body = submit_request(
            StagedLaunch(config=config, folder=self._commands, experiments=workspace.experiments),
            ref=self._ref,
            token=self._token,
        )
        self._body = {**body, "timeout_seconds": act.limit}

    def _pack(self, packs: str) -> str:
        """Have a locked environment in the folder `packs`; return its digest in hex."""
        files = self._workspace.area.files
        files.make_folder(packs)
        with scratch_folder("upload") as scratch:
            digest = pack_tree(self._act.base or DEFAULT_BASE, scratch)
            for file in sorted(scratch.iterdir()):
                files.put(f"{packs}/{file.name}", file)
        return digest.removeprefix("sha256:")

    def _submit(self) -> None:
        """Submit it. The token makes one run of repeated requests."""
        answer = self._workspace.connection.tell(
            f"submitting the probe `{self.name}`", "/api/2.2/jobs/runs/submit", self._body
        )
        self._run_id = int(str(answer["run_id"]))

    def await_record(
        self, name: str, patience: float, *, unless: Callable[[], bool] = lambda: False
    ) -> Record | None:
        """Wait for a record of node 0 in the first attempt; None if the run ends before, if it is
        not to be seen in that time, or if `unless` says that it never will be."""
        deadline = time.monotonic() + patience
        while True:
            over = self.over() or unless()
            record = self.record(name)
            if record is not None or over or time.monotonic() > deadline:
                return record
            time.sleep(_PAUSE)

    def record(self, name: str, *, attempt: int = 0, node: int = 0) -> Record | None:
        """A record that a node wrote to the launch folder, as it is there now."""
        path = f"{self._back}/{attempt}/node_{node}/{name}.json"
        try:
            record = json.loads(self._workspace.area.files.get(path))
        except (PlaceMissing, ValueError):  # not there, or not whole
            return None
        return record if isinstance(record, dict) else None

    def began(self) -> bool:
        """Whether a node has been given to it, by the platform's word."""
        return state_of(self._shown()) in (None, AttemptState.RUNNING, AttemptState.STOPPING)

    def over(self) -> bool:
        return state_of(self._shown()) is None

    def await_end(self, patience: float) -> bool:
        """Wait until it has ended; whether it has."""
        deadline = time.monotonic() + patience
        while not (over := self.over()) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        return over

    def shown(self) -> Mapping[str, Any]:
        """The run as the Jobs API shows it."""
        return self._workspace.run_cache.run(self.run_id, afresh=True) or {}

    def _shown(self) -> Mapping[str, Any]:
        return self._workspace.run_cache.run(self.run_id) or {"state": {"result_state": "CANCELED"}}

    def put(self, name: str) -> None:
        """Upload a small file for nodes to see."""
        self._workspace.area.files.put(f"{self._back}/{name}", b"1")

    def lines(self, heard: Callable[[str], None], *, follow: bool) -> None:
        """Pass on the lines of its log; all there is, or as they come until it ends."""
        part = RunPart(run_id=self.run_id)
        log = WorkspaceLog(self._ref, self._workspace, part, ranks=None, follow=follow)
        ended = False
        with suppress(NotFound):
            while not ended:
                lines, ended = log.read()
                for piece in lines:
                    for line in piece.lines:
                        heard(line)
                if not ended:
                    time.sleep(OFTEN)

    def cancel(self) -> None:
        """Ask the platform to end it. Raises BackendError."""
        with suppress(PlaceMissing, Rejected):  # it has ended, or is gone
            self._workspace.connection.tell(
                f"cancelling the probe `{self.name}`",
                "/api/2.2/jobs/runs/cancel",
                {"run_id": self.run_id},
            )

    def remove(self) -> None:
        """End it if it goes on, and delete all that is left of it: the run, its MLflow experiment,
        its folders. Raises BackendError."""
        if self._body:
            if self._run_id is None:
                self._submit()  # the answer was lost, or never waited for
            if not self.over():
                self.cancel()
                self.await_end(_ENDING)
            tell = self._workspace.connection.tell
            for experiment in self._experiments():
                with suppress(PlaceMissing):
                    tell(
                        "deleting the experiment of a probe",
                        "/api/2.0/mlflow/experiments/delete",
                        {"experiment_id": experiment},
                    )
            with suppress(PlaceMissing):
                tell("deleting a probe", "/api/2.2/jobs/runs/delete", {"run_id": self.run_id})
        self._workspace.area.files.delete(self._folder)
        if self._commands != self._folder:
            self._workspace.area.command_files.delete(self._commands)

    def _experiments(self) -> set[str]:
        ids = set()
        for task in self.shown().get("tasks") or ():
            experiment = self._workspace.run_cache.output(int(task["run_id"])).get(
                "mlflow_experiment_id"
            )
            if experiment:
                ids.add(str(experiment))
        return ids


SECRET = "PROBE_SECRET"  # noqa: S105  the name of a variable
"""The variable of the secret that a probe lets the platform resolve."""


def records_in(lines: Sequence[str]) -> list[Record]:
    """The records in lines of the log."""
    records = []
    for line in lines:
        if line.startswith(LINE):
            with suppress(ValueError):
                records.append(json.loads(line.removeprefix(LINE)))
    return [item for item in records if isinstance(item, dict)]


def _config(act: Act, token: str) -> RunConfig:
    """The run that the engine makes the body of."""
    env: dict[str, Json] = {}
    if act.base is not None:
        env["base"] = act.base
    if act.secret is not None:
        env["secrets"] = {SECRET: f"databricks:{act.secret}"}
    return RunConfig.model_validate(
        {
            "name": f"sgpu-doctor-{act.name}",
            "gpus": act.nodes,
            "type": "A10",
            "command": ["true"],
            "env": env,
            "retry": {"max": act.retries, "on": ["infra"]},
            "mlflow": {"experiment": token},  # nobody else's: it is deleted
            "backend": {"kind": "databricks"},
        }
    )


def render_probe(
    agent: str,
    act: str,
    *,
    launch: str,
    objects: str,
    out: str,
    platform: PlatformTable,
    seconds: float,
    secret: str = "",
    environment: str = "",
) -> str:
    """Return the bash script that measures one node, which gets its agent as any run does.

    Args:
        agent: the SHA-256 of the archive with the node agent.
        act: one of those that `agent.probe.probe_program` knows.
        launch: the folder that the script lies in.
        objects: the folder of shared objects, with the agent.
        out: where records go.
        platform: what the platform calls things.
        seconds: how long the act may take, where it waits for something.
        secret: the variable of a secret, if one is to be resolved.
        environment: the hex of an environment's digest, if one is to be made.

    Raises:
        ValueError: `agent` is no SHA-256.
    """
    if not _SHA256.fullmatch(agent):
        raise ValueError(f"not a SHA-256 in hex: {agent!r}")
    return render(
        "databricks",
        "probe.sh.j2",
        agent=agent,
        launch=shlex.quote(launch),
        objects=shlex.quote(objects),
        out=shlex.quote(out),
        managed="",  # what the PATH has is measured
        platform=shlex.quote(platform.to_json()),
        act=shlex.quote(act),
        seconds=f"{seconds:g}",
        secret=shlex.quote(secret) if secret else "",
        environment=shlex.quote(environment) if environment else "",
    )
