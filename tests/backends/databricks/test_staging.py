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

PATIENCE = 120.0


class Told:
    """What was told of progress: of each phase, all of it."""

    def __init__(self) -> None:
        self.phases: dict[str, list[tuple[int, int]]] = {}

    def advance(self, phase: str, done: int, total: int) -> None:
        self.phases.setdefault(phase, []).append((done, total))


def succeeded(opened: Session) -> bool:
    plan = opened.plan(take_in=True)
    (ref,) = opened.apply(plan).launched
    opened.runs.wait([ref], timeout=PATIENCE)
    opened.record_ended()
    assert opened.runs.status(ref).state is AttemptState.SUCCEEDED, [
        it.text for it in opened.runs.logs(ref, ranks=None, follow=False) if it
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

    opened.equip(opened.plan(take_in=True), progress=told)

    for phase in ("archiving", "uploading"):
        done = [it for it, _ in told.phases[phase]]
        (total,) = {it for _, it in told.phases[phase]}
        assert done == sorted(done)
        assert 0 < done[len(done) // 2] < done[-1] == total


def test_a_result_that_a_workspace_does_not_hand_out_says_what_to_do(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    (project / "train.py").write_text("def main(n):\n    return 'x' * 11_000_000\n")
    opened = session()

    with pytest.raises(SgpuError) as caught:
        succeeded(opened)

    assert caught.value.code == "too_large_to_fetch"
    assert "backend.staging" in str(caught.value.hint)
    assert opened.runs.status(opened.runs.find("hello")[0]).state is AttemptState.SUCCEEDED
    stage_in_a_volume(server, project, token)
    again = session()
    (ref,) = again.apply(again.plan(PlanOptions(rerun=("hello",)))).launched
    again.runs.wait([ref], timeout=PATIENCE)
    assert len(str(again.runs.results(ref)[1]["value"])) == 11_000_000


def test_a_volume_can_be_the_staging_folder(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    volume = stage_in_a_volume(server, project, token)

    assert succeeded(session())

    assert len(list(volume.glob("here/objects/code/*.tar.gz"))) == 1
    assert list(volume.glob("here/runs/*/hello/1-*/submitted.json"))


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
    opened.equip(opened.plan(take_in=True), progress=told)
    sent = [done for done, _ in told.phases["sending"]]
    (total,) = {it for _, it in told.phases["sending"]}
    assert sent == sorted(sent)
    assert sent[0] < total // 2 < sent[-1] == total, "in one pack"

    assert succeeded(opened)

    packs = list(tenant.glob("Workspace/Users/*/.sgpu/objects/packs/*"))
    kinds = {it.suffix for it in packs}
    assert kinds == {".pack", ".packs", ".manifest"}
    assert opened.runs.results(opened.runs.find("hello")[0])[0]["value"] == "carried along"


@pytest.mark.parametrize("effect", [Effect.CUT, Effect.LOSE_ANSWER])
def test_an_upload_that_breaks_off_is_tried_again(
    session: Callable[[], Session],
    project: Path,
    server: WorkspaceServer,
    token: str,
    effect: Effect,
) -> None:
    server.faults.add(
        Fault(pattern="POST */workspace-files/import-file/*", effect=effect, after=2),
        tenant=server.tenants.of_token(token).key,
    )

    assert succeeded(session())


def test_a_refused_upload_leaves_no_run_and_goes_on_where_it_stopped(
    session: Callable[[], Session], project: Path, server: WorkspaceServer, token: str
) -> None:
    key = server.tenants.of_token(token).key
    server.faults.add(
        Fault(pattern="POST */workspace-files/import-file/*command.sh", effect=Effect.STATUS,
              status_code=403, body={"error_code": "PERMISSION_DENIED", "message": "not yours"}),
        tenant=key,
    )  # fmt: skip
    opened = session()

    ((_, error),) = opened.apply(opened.plan()).failed

    assert error.code == "permission_denied"
    assert "command.sh" in error.message
    server.recording.clear(key)
    assert succeeded(session())
    again = [it.path for it in server.recording.all(key) if "import-file" in it.path]
    assert not [path for path in again if "objects" in path]


def test_a_folder_where_an_object_should_be_is_said(
    session: Callable[[], Session], server: WorkspaceServer, token: str
) -> None:
    opened = session()
    plan = opened.plan()
    (digest,) = {it.code.digest for it in plan.changes if it.code}
    name = digest.removeprefix("sha256:") + ".tar.gz"
    tenant = server.tenants.of_token(token)
    home = tenant.tree("Workspace") / tenant.home[1:]
    (home / ".sgpu/objects/code" / name).mkdir(parents=True)

    with pytest.raises(SgpuError) as caught:
        opened.apply(plan)

    assert caught.value.code == "staging_taken"
    assert name in caught.value.message
