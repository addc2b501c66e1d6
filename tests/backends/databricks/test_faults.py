"""What a workspace may do to an apply and to a run: each time one run, and words that help."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from databricks.sdk.config import Config

from sgpu_decl.api import PlanOptions, Session
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer, clock
from sgpu_decl.testing.workspace.executing.records import Runs
from tests.backends.databricks.test_staging import stage_in_a_volume

Opened = Callable[[], Session]
PATIENCE = 120.0
MIB = 1 << 20


def launched(opened: Session) -> AttemptRef:
    (ref,) = opened.apply(opened.plan()).launched
    return ref


def succeeded(opened: Session, ref: AttemptRef) -> bool:
    opened.runs.wait([ref], timeout=PATIENCE)
    opened.record_ended()
    return opened.runs.status(ref).state is AttemptState.SUCCEEDED


def refused(opened: Session) -> SgpuError:
    """How an apply ended that could not even stage what all launches share."""
    with pytest.raises(BackendError) as caught:
        launched(opened)
    return caught.value


@pytest.fixture
def runs(server: WorkspaceServer, token: str) -> Callable[[], int]:
    """How many runs there are in the workspace."""
    return lambda: len(Runs(server.tenants.of_token(token)).all())


@pytest.fixture
def befall(server: WorkspaceServer, token: str) -> Callable[..., None]:
    """Let a fault befall this user's requests."""
    key = server.tenants.of_token(token).key

    def add(pattern: str, effect: Effect = Effect.STATUS, **more: object) -> None:
        server.faults.add(Fault(pattern=pattern, effect=effect, **more), tenant=key)  # type: ignore[arg-type]  # fields of a fault

    return add


@pytest.fixture
def in_parts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of 8 MiB, which the SDK sends in parts of one."""
    for name in ("min_stream_size", "default_part_size"):
        monkeypatch.setattr(Config, f"files_ext_multipart_upload_{name}", MIB)
    monkeypatch.setattr(Config, "files_ext_multipart_upload_part_size_options", [MIB])
    (project / "weights.bin").write_bytes(random.Random(1).randbytes(8 * MIB - 1000))


@pytest.mark.parametrize("hours", [3, -30])
def test_a_clock_that_is_hours_away_changes_nothing_but_is_said(
    session: Opened,
    project: Path,
    server: WorkspaceServer,
    token: str,
    in_parts: None,
    hours: int,
) -> None:
    volume = stage_in_a_volume(server, project, token)
    before = datetime.now(UTC)

    with clock.ahead(hours * 3600):
        opened = session()
        (check,) = [it for it in opened.plan().checks if it.id == "clock_differs"]
        ref = launched(opened)
        followed = [it for it in opened.runs.logs(ref, ranks=(1,), follow=True) if it is not None]
        assert succeeded(opened, ref)
        status = session().runs.status(ref)
        results = opened.runs.results(ref)
        opened.apply(opened.plan(PlanOptions(destroy=True)))

    assert ("ahead" if hours > 0 else "behind") in check.summary
    assert "timedatectl" in str(check.hint)
    assert [it.text for it in followed] == ["hello from 1", "and more"]
    assert len(results) == 2
    assert status.started_at is not None
    assert status.ended_at is not None
    assert abs((status.started_at - before).total_seconds()) < 3600
    assert status.started_at <= status.ended_at
    assert not list(volume.glob("here/objects/*/*"))


def test_an_upload_that_breaks_at_part_seven(
    session: Opened,
    project: Path,
    server: WorkspaceServer,
    token: str,
    in_parts: None,
    befall: Callable[..., None],
    runs: Callable[[], int],
) -> None:
    volume = stage_in_a_volume(server, project, token)
    befall("PUT /__storage/*/7", status_code=400)

    error = refused(session())

    assert "objects/code" in error.message
    assert not list(volume.glob("here/objects/code/*")), "no half object"
    assert runs() == 0
    befall("PUT /__storage/*/7", Effect.CUT)
    opened = session()
    assert succeeded(opened, launched(opened))
    assert len(list(volume.glob("here/objects/code/*"))) == 1
    assert runs() == 1


def test_staging_that_takes_nothing_says_where_else(
    session: Opened,
    project: Path,
    server: WorkspaceServer,
    token: str,
    befall: Callable[..., None],
    runs: Callable[[], int],
) -> None:
    stage_in_a_volume(server, project, token)
    told = [
        ("PUT */fs/files/*", 507, "INSUFFICIENT_STORAGE", "no_room", "sgpu gc"),
        ("PUT */fs/directories/*", 403, "PERMISSION_DENIED", "permission_denied", "you may"),
        ("PUT */fs/directories/*", 404, "NOT_FOUND", "remote_missing", "make the volume"),
    ]
    for pattern, status, name, code, hint in told:
        befall(
            pattern, status_code=status, body={"error_code": name, "message": "of the test"}
        )  # fmt: skip
        error = refused(session())
        assert (error.code, "/Volumes/main/ml/sgpu/here/" in error.message) == (code, True)
        assert hint in str(error.hint)
        assert "backend.staging" in str(error.hint)
    assert runs() == 0
    opened = session()
    assert succeeded(opened, launched(opened)), "once there is room"
    assert runs() == 1
