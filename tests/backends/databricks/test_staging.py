"""What is brought to a workspace: to a volume, with an environment, after broken uploads."""

import os
from collections.abc import Callable
from pathlib import Path
from venv import create

import pytest

from sgpu_decl.api import PlanOptions, Session
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from tests.support import PATIENCE


class Told:
    """What was told of progress: of each phase, all of it."""

    def __init__(self) -> None:
        self.phases: dict[str, list[tuple[int, int]]] = {}

    def advance(self, phase: str, done: int, total: int) -> None:
        self.phases.setdefault(phase, []).append((done, total))


def uploads(server: WorkspaceServer, key: str, api: str = "/workspace/import") -> list[str]:
    """The paths of files that were sent."""
    asked = [item for item in server.recording.all(key) if item.path.endswith(api)]
    return [str(item.json["path"]) for item in asked if isinstance(item.json, dict)]


def succeeded(opened: Session) -> bool:
    plan = opened.plan(for_apply=True)
    (ref,) = opened.apply(plan).launched
    opened.runs.wait([ref], timeout=PATIENCE)
    opened.record_ended()
    assert opened.runs.status(ref).state is AttemptState.SUCCEEDED, [
        log.text for log in opened.runs.logs(ref, ranks=None, follow=False) if log
    ]
    return len(opened.runs.results(ref)) == 2


def stage_in_a_volume(server: WorkspaceServer, project: Path, token: str) -> Path:
    tenant = server.tenants.of_token(token)
    volume = tenant.tree("Volumes") / "main" / "ml" / "sgpu"
    volume.mkdir(parents=True)
    run = (project / "run.yaml").read_text()
    staged = "backend: {kind: databricks, staging: /Volumes/main/ml/sgpu/here}"
    (project / "run.yaml").write_text(run.replace("backend: databricks", staged))
    return volume


@pytest.mark.parametrize("volume", [False, True])
def test_how_far_the_upload_of_code_has_come_is_told_meanwhile(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str, volume: bool
) -> None:
    if volume:
        stage_in_a_volume(server, project, token)
    (project / "data.bin").write_bytes(os.urandom(1_000_000))
    opened, told = session(), Told()

    opened.stage(opened.plan(for_apply=True), progress=told)

    for phase in ("archiving", "uploading"):
        done = [item for item, _ in told.phases[phase]]
        (total,) = {item for _, item in told.phases[phase]}
        assert done == sorted(done)
        assert 0 < done[len(done) // 2] < done[-1] == total


LEAVES_MUCH = """\
import os, pathlib
def main(n):
    if os.environ["RANK"] == "0":
        pathlib.Path(os.environ["SGPU_OUTPUT_DIR"], "large").write_bytes(bytes(11_000_000))
    return n
"""


@pytest.mark.expensive
def test_on_a_volume_lie_objects_and_what_comes_back_and_no_command(
    session: Callable[[], Session],
    project: Path,
    server: WorkspaceServer,
    token: str,
    tenant: Path,
) -> None:
    volume = stage_in_a_volume(server, project, token)
    (project / "train.py").write_text(LEAVES_MUCH)
    opened = session()

    assert succeeded(opened)

    assert len(list(volume.glob("here/objects/code/*.tar.gz"))) == 1
    (marker,) = volume.glob("here/runs/*/hello/1-*/submitted.json")
    (command,) = tenant.glob("Workspace/Users/*/.sgpu/commands/*/hello/1-*/command.sh")
    assert not (marker.parent / "command.sh").exists()
    assert (marker.parent / "back/0/node_0/output/large").stat().st_size == 11_000_000, "whole"
    (ref,) = opened.runs.find("hello")
    assert (opened.runs.output(ref).folder / "large").stat().st_size == 11_000_000
    opened.apply(opened.plan(PlanOptions(destroy=True)))
    assert not command.parent.exists()
    assert (marker.parent / "back").exists()


@pytest.mark.expensive
def test_a_captured_environment_goes_along_and_once(
    session: Callable[[], Session], project: Path, tmp_path: Path, tenant: Path
) -> None:
    venv = tmp_path / "venv"
    create(venv, symlinks=True)
    (package,) = venv.glob("lib/python*/site-packages")
    (package / "carried.py").write_text("WORD = 'carried along'\n")
    (package / "data.bin").write_bytes(os.urandom(1_000_000))
    run = (project / "run.yaml").read_text()
    declared = f"env: {{base: gpu-6, snapshot: true, python: {venv}/bin/python}}"
    (project / "run.yaml").write_text(run.replace("env: {base: gpu-6}", declared))
    (project / "train.py").write_text("import carried\ndef main(n):\n    return carried.WORD\n")
    opened, told = session(), Told()
    opened.stage(opened.plan(for_apply=True), progress=told)
    sent = [done for done, _ in told.phases["sending"]]
    (total,) = {phase for _, phase in told.phases["sending"]}
    assert sent == sorted(sent)
    assert sent[0] < total // 2 < sent[-1] == total, "in one pack"

    assert succeeded(opened)

    packs = list(tenant.glob("Workspace/Users/*/.sgpu/objects/packs/*"))
    kinds = {pack.suffix for pack in packs}
    assert kinds == {".pack", ".packs", ".manifest"}
    assert opened.runs.results(opened.runs.find("hello")[0])[0]["value"] == "carried along"


@pytest.mark.expensive
@pytest.mark.parametrize("effect", [Effect.CUT, Effect.LOSE_ANSWER])
def test_an_upload_that_breaks_off_is_tried_again(
    session: Callable[[], Session],
    project: Path,
    server: WorkspaceServer,
    token: str,
    effect: Effect,
) -> None:
    server.faults.add(
        Fault(pattern="POST */workspace/import", effect=effect, after=2),
        tenant=server.tenants.of_token(token).key,
    )

    assert succeeded(session())


@pytest.mark.expensive
def test_a_refused_upload_leaves_no_run_and_goes_on_where_it_stopped(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    key = server.tenants.of_token(token).key
    server.faults.add(
        Fault(pattern="POST */workspace/import", effect=Effect.STATUS, after=3, status_code=403,
              body={"error_code": "PERMISSION_DENIED", "message": "not yours"}),
        tenant=key,
    )  # fmt: skip
    opened = session()

    ((_, error),) = opened.apply(opened.plan()).failed

    assert error.code == "permission_denied"
    assert "/runs/" in error.message, "after what is shared"
    server.recording.clear(key)
    assert succeeded(session())
    again = uploads(server, key)
    assert again
    assert not [path for path in again if "/objects/" in path]


def test_a_folder_where_an_object_should_be_is_said(
    session: Callable[[], Session], server: WorkspaceServer, token: str
) -> None:
    opened = session()
    plan = opened.plan()
    (digest,) = {change.code.digest for change in plan.plan.changes if change.code}
    name = digest.removeprefix("sha256:") + ".tar.gz"
    tenant = server.tenants.of_token(token)
    home = tenant.tree("Workspace") / tenant.home[1:]
    (home / ".sgpu/objects/code" / name).mkdir(parents=True)

    with pytest.raises(SgpuError) as caught:
        opened.apply(plan)

    assert caught.value.code == "staging_taken"
    assert name in caught.value.message


NOT_THERE = {"error_code": "ENDPOINT_NOT_FOUND", "message": "no API for that"}
TOO_LARGE = {
    "error_code": "BAD_REQUEST",
    "message": "File size imported is (1 bytes), exceeded max size (10485760 bytes)",
}


@pytest.mark.expensive
@pytest.mark.parametrize("answer", [(404, NOT_THERE), (400, TOO_LARGE)])
def test_a_workspace_whose_import_takes_no_files_is_sent_them_by_the_older_api(
    session: Callable[[], Session],
    server: WorkspaceServer,
    token: str,
    answer: tuple[int, dict[str, str]],
) -> None:
    key = server.tenants.of_token(token).key
    status, body = answer
    server.faults.add(
        Fault(pattern="POST */workspace/import", effect=Effect.STATUS, times=0, status_code=status,
              body=dict(body)),
        tenant=key,
    )  # fmt: skip

    assert succeeded(session())

    older = [item for item in server.recording.all(key) if "/import-file/" in item.path]
    assert {item.status for item in older} == {200}
    assert any("objects%2Fcode" in item.path for item in older)


@pytest.mark.expensive
def test_files_are_sent_as_the_clients_of_the_platform_send_them(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    """In one form each, read as it is sent, with code of more than the 10 MiB of a JSON body."""
    (project / "data.bin").write_bytes(os.urandom(11_000_000))
    key = server.tenants.of_token(token).key

    assert succeeded(session())

    sent = uploads(server, key)
    assert [item for item in sent if "/objects/code/" in item]
    assert not [item for item in server.recording.all(key) if "/import-file/" in item.path]


@pytest.mark.expensive
def test_parameters_lie_beside_the_code_on_nodes(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    run = (project / "run.yaml").read_text()
    (project / "run.yaml").write_text(f"{run}parameters: {{lr: 1e-5, layers: [1, 2]}}\n")
    (project / "train.py").write_text(
        "import os\ndef main(n):\n    return open(os.environ['HYPERPARAMETERS_PATH']).read()\n"
    )
    opened = session()

    assert succeeded(opened)

    (ref,) = opened.runs.find("hello")
    found = {result["value"] for result in opened.runs.results(ref)}
    assert found == {"layers:\n- 1\n- 2\nlr: 1.0e-05\n"}


def test_no_file_that_is_sent_as_a_form_is_empty(
    session: Callable[[], Session], server: WorkspaceServer, token: str, tenant: Path
) -> None:
    assert succeeded(session())

    files = [path for path in tenant.glob("Workspace/Users/*/.sgpu/**/*") if path.is_file()]
    assert {
        file.name for file in files if not file.stat().st_size and "back" not in file.parts
    } == set()
