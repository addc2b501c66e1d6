"""A project whose run goes to an emulated workspace, and what that workspace has of its user."""

import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgpu_decl.api import Location, PlanOptions, Session
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.plan import Change, Plan
from sgpu_decl.model.rank_output import LogLines
from sgpu_decl.testing.contracts.killed_commands import dying
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from sgpu_decl.testing.workspace.executing.records import RunRecords
from sgpu_decl.testing.workspace.request_log import Recorded
from sgpu_decl.testing.workspace.tenant import Tenant
from sgpu_decl.views.status_json import status_objects
from tests.support import PATIENCE

__all__ = ["FAILS", "SLEEPS", "DatabricksBench", "Launched"]

FAILS = "def main(n):\n    raise ValueError('no such thing')\n"
SLEEPS = "import time\ndef main(n):\n    print('up', flush=True)\n    time.sleep(600)\n"


@dataclass(frozen=True)
class Launched:
    """An attempt, as the session sees it that launched it."""

    session: Session
    ref: AttemptRef

    def ended(self) -> "Launched":
        """The same, once it has ended and that is recorded."""
        self.session.runs.wait([self.ref], timeout=PATIENCE)
        self.session.record_ended()
        return self

    def cancelled(self) -> "Launched":
        self.session.runs.cancel(self.ref)
        return self.ended()

    @property
    def status(self) -> AttemptView:
        return self.session.runs.status(self.ref)

    @property
    def told(self) -> dict[str, Any]:
        """Its `status` object, with what is said of its failure."""
        (told,) = status_objects(self.session.runs.describe([self.ref]))
        return told

    @property
    def cause(self) -> dict[str, Any]:
        return dict(self.told["first_cause"])

    @property
    def results(self) -> list[dict[str, Any]]:
        return list(self.session.runs.results(self.ref))

    def lines(self, *ranks: int, follow: bool = False) -> list[LogLines]:
        """Those of these ranks, or of all."""
        logs = self.session.runs.logs(self.ref, ranks=ranks or None, follow=follow)
        return [line for line in logs if line is not None]

    def texts(self, *ranks: int, follow: bool = False) -> list[str]:
        return [line.text for line in self.lines(*ranks, follow=follow)]

    def up(self) -> None:
        """Wait for the first line of rank 0."""
        logs = self.session.runs.logs(self.ref, ranks=(0,), follow=True)
        next(line for line in logs if line is not None)


@dataclass(frozen=True)
class DatabricksBench:
    """A project of one user, with the run `hello`, and the workspace that it goes to."""

    project: Path
    server: WorkspaceServer
    token: str
    file: str = "run.yaml"

    # The project

    def declare(self, old: str = "", new: str = "", more: str = "") -> None:
        """Replace a part of the run file, and add fields to it."""
        file = self.project / self.file
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new) + more)

    def code(self, source: str) -> None:
        (self.project / "train.py").write_text(source)

    def stage_in_a_volume(self) -> Path:
        """Have the run staged there; the folder of the volume on disk."""
        volume = self.tenant.tree("Volumes") / "main" / "ml" / "sgpu"
        volume.mkdir(parents=True)
        staged = "backend: {kind: databricks, staging: /Volumes/main/ml/sgpu/here}"
        self.declare("backend: databricks", staged)
        return volume

    def open(self, file: str | None = None) -> Session:
        """The project anew, as another call of the command line opens it."""
        return Session.open(Location(file=self.project / (file or self.file), project=self.project))

    def plan(self, **options: Any) -> Plan:
        return self.open().plan(PlanOptions(**options)).plan

    def change(self) -> Change:
        """What a plan says of the one run."""
        (change,) = self.plan().changes
        return change

    def checks(self) -> dict[str, Diagnostic]:
        return {check.code: check for check in self.plan().checks}

    def launch(self, session: Session | None = None, **options: Any) -> Launched:
        opened = session or self.open()
        (ref,) = opened.apply(opened.plan(PlanOptions(**options))).launched
        return Launched(opened, ref)

    def run(self, session: Session | None = None, **options: Any) -> Launched:
        """Launch, and wait for the end."""
        return self.launch(session, **options).ended()

    def killed(self, step: str, *words: str) -> None:
        """An apply in a process of its own, which dies by SIGKILL at a step (`dying`)."""
        died = subprocess.run(
            dying(step, "apply", *words), cwd=self.project, capture_output=True, check=False
        )
        assert died.returncode == -signal.SIGKILL, died.stderr.decode()

    # The workspace

    @property
    def tenant(self) -> Tenant:
        """The user's part of the workspace."""
        return self.server.tenants.of_token(self.token)

    @property
    def staging(self) -> Path:
        """What lies there for launches, on disk."""
        (found,) = self.tenant.folder.glob("Workspace/Users/*/.sgpu")
        return found

    @property
    def records(self) -> RunRecords:
        """Of the runs of the workspace."""
        return RunRecords(self.tenant)

    @property
    def runs(self) -> int:
        """How many there are."""
        return len(self.records.all())

    def fault(self, pattern: str, effect: Effect = Effect.STATUS, **more: Any) -> None:
        """Let a fault befall the requests of this user."""
        self.server.faults.add(
            Fault(pattern=pattern, effect=effect, **more), tenant=self.tenant.key
        )

    def refuse(self, pattern: str, status: int, code: str, message: str, **more: Any) -> None:
        """Have requests answered with an error."""
        body = {"error_code": code, "message": message}
        self.fault(pattern, status_code=status, body=body, **more)

    def hook(self, hook: str, **arguments: Any) -> None:
        """What befalls the next run that is submitted."""
        self.fault("POST */runs/submit", Effect.HOOK, hook=hook, arguments=arguments)

    def no_faults(self) -> None:
        self.server.faults.clear(self.tenant.key)

    def requests(self, path: str = "") -> list[Recorded]:
        """Those of this user that have this in their path."""
        return [one for one in self.server.recording.all(self.tenant.key) if path in one.path]

    def forget_requests(self) -> None:
        self.server.recording.clear(self.tenant.key)

    def uploads(self) -> list[str]:
        """The paths of files that were sent."""
        asked = [one for one in self.requests() if one.path.endswith("/workspace/import")]
        return [str(one.json["path"]) for one in asked if isinstance(one.json, dict)]
