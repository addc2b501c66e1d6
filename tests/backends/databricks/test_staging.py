"""What is brought to a workspace: to a volume, with an environment, after broken uploads."""

import os
from pathlib import Path
from venv import create

import pytest

from sgpu_decl.api import PlanOptions, Session
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.testing.workspace import Effect
from tests.backends.databricks.bench import DatabricksBench, Launched


class Told:
    """What was told of progress: of each phase, all of it."""

    def __init__(self) -> None:
        self.phases: dict[str, list[tuple[int, int]]] = {}

    def advance(self, phase: str, done: int, total: int) -> None:
        self.phases.setdefault(phase, []).append((done, total))


def succeeded(bench: DatabricksBench, session: Session | None = None) -> Launched:
    """A run to its end, of both of whose ranks there is a result."""
    opened = session or bench.open()
    (ref,) = opened.apply(opened.plan(for_apply=True)).launched
    run = Launched(opened, ref).ended()
    assert run.status.state is AttemptState.SUCCEEDED, run.texts()
    assert len(run.results) == 2
    return run


@pytest.mark.parametrize("volume", [False, True])
def test_how_far_the_upload_of_code_has_come_is_told_meanwhile(
    bench: DatabricksBench, volume: bool
) -> None:
    if volume:
        bench.stage_in_a_volume()
    (bench.project / "data.bin").write_bytes(os.urandom(1_000_000))
    opened, told = bench.open(), Told()

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
    bench: DatabricksBench, tenant: Path
) -> None:
    volume = bench.stage_in_a_volume()
    bench.code(LEAVES_MUCH)

    run = succeeded(bench)

    assert len(list(volume.glob("here/objects/code/*.tar.gz"))) == 1
    (marker,) = volume.glob("here/runs/*/hello/1-*/submitted.json")
    (command,) = tenant.glob("Workspace/Users/*/.sgpu/commands/*/hello/1-*/command.sh")
    assert not (marker.parent / "command.sh").exists()
    assert (marker.parent / "back/0/node_0/output/large").stat().st_size == 11_000_000, "whole"
    kept = run.session.runs.output(run.ref)
    assert (kept.folder / "large").stat().st_size == 11_000_000
    run.session.apply(run.session.plan(PlanOptions(destroy=True)))
    assert not command.parent.exists()
    assert (marker.parent / "back").exists()


@pytest.mark.expensive
def test_a_captured_environment_goes_along_and_once(bench: DatabricksBench, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    create(venv, symlinks=True)
    (package,) = venv.glob("lib/python*/site-packages")
    (package / "carried.py").write_text("WORD = 'carried along'\n")
    (package / "data.bin").write_bytes(os.urandom(1_000_000))
    bench.declare("{base: gpu-6}", f"{{base: gpu-6, snapshot: true, python: {venv}/bin/python}}")
    bench.code("import carried\ndef main(n):\n    return carried.WORD\n")
    opened, told = bench.open(), Told()
    opened.stage(opened.plan(for_apply=True), progress=told)
    sent = [done for done, _ in told.phases["sending"]]
    (total,) = {phase for _, phase in told.phases["sending"]}
    assert sent == sorted(sent)
    assert sent[0] < total // 2 < sent[-1] == total, "in one pack"

    run = succeeded(bench, opened)

    packs = list(bench.staging.glob("objects/packs/*"))
    assert {pack.suffix for pack in packs} == {".pack", ".packs", ".manifest"}
    assert run.results[0]["value"] == "carried along"


@pytest.mark.expensive
@pytest.mark.parametrize("effect", [Effect.CUT, Effect.LOSE_ANSWER])
def test_an_upload_that_breaks_off_is_tried_again(bench: DatabricksBench, effect: Effect) -> None:
    bench.fault("POST */workspace/import", effect, after=2)

    succeeded(bench)


@pytest.mark.expensive
def test_a_refused_upload_leaves_no_run_and_goes_on_where_it_stopped(
    bench: DatabricksBench,
) -> None:
    bench.refuse("POST */workspace/import", 403, "PERMISSION_DENIED", "not yours", after=3)
    opened = bench.open()

    ((_, error),) = opened.apply(opened.plan()).failed

    assert error.code == "permission_denied"
    assert "/runs/" in error.message, "after what is shared"
    bench.forget_requests()
    succeeded(bench)
    again = bench.uploads()
    assert again
    assert not [path for path in again if "/objects/" in path]


def test_a_folder_where_an_object_should_be_is_said(bench: DatabricksBench) -> None:
    opened = bench.open()
    plan = opened.plan()
    (digest,) = {change.code.digest for change in plan.plan.changes if change.code}
    name = digest.removeprefix("sha256:") + ".tar.gz"
    home = bench.tenant.tree("Workspace") / bench.tenant.home[1:]
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
@pytest.mark.parametrize(("status", "body"), [(404, NOT_THERE), (400, TOO_LARGE)])
def test_a_workspace_whose_import_takes_no_files_is_sent_them_by_the_older_api(
    bench: DatabricksBench, status: int, body: dict[str, str]
) -> None:
    bench.fault("POST */workspace/import", times=0, status_code=status, body=dict(body))

    succeeded(bench)

    older = bench.requests("/import-file/")
    assert {item.status for item in older} == {200}
    assert any("objects%2Fcode" in item.path for item in older)


@pytest.mark.expensive
def test_files_are_sent_as_the_clients_of_the_platform_send_them(bench: DatabricksBench) -> None:
    """In one form each, read as it is sent, with code of more than the 10 MiB of a JSON body."""
    (bench.project / "data.bin").write_bytes(os.urandom(11_000_000))

    succeeded(bench)

    assert [item for item in bench.uploads() if "/objects/code/" in item]
    assert bench.requests("/import-file/") == []


@pytest.mark.expensive
def test_parameters_lie_beside_the_code_on_nodes(bench: DatabricksBench) -> None:
    bench.declare(more="parameters: {lr: 1e-5, layers: [1, 2]}\n")
    bench.code(
        "import os\ndef main(n):\n    return open(os.environ['HYPERPARAMETERS_PATH']).read()\n"
    )

    found = {result["value"] for result in succeeded(bench).results}

    assert found == {"layers:\n- 1\n- 2\nlr: 1.0e-05\n"}


def test_no_file_that_is_sent_as_a_form_is_empty(bench: DatabricksBench) -> None:
    succeeded(bench)

    files = [path for path in bench.staging.glob("**/*") if path.is_file()]
    empty = {path.name for path in files if not path.stat().st_size and "back" not in path.parts}
    assert empty == set()
