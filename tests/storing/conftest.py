"""Values to store, and a store in a folder of the test's own."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord, Provenance
from sgpu_decl.model.state import Attempt, Intent, Resource
from sgpu_decl.storing.journal.file_journal import FileJournal
from sgpu_decl.storing.sqlite.store import SqliteStore
from sgpu_decl.storing.stores import SharedPlace, shared_journal

NOON = datetime(2026, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Launched:
    record: LaunchRecord
    intent: Intent
    resource: Resource
    attempt: Attempt


def make_launch(
    name: str = "train", number: int = 1, *, state: AttemptState = AttemptState.RUNNING
) -> Launched:
    address = Address.run(name)
    record = LaunchRecord(
        ref=AttemptRef(address, number),
        backend="local",
        token=f"token-{name}-{number}",
        lineage="lin",
        owner="run.yaml",
        inputs=LaunchInputs(
            spec=Spec('{"gpus":2}'),
            fingerprint="sha256:aa",
            code_digest="sha256:bb",
            placement="p-1",
        ),
        wait_for=tuple(range(1, number)),
        provenance=Provenance(reason="first_run", commit="c0ffee", dirty=True),
    )
    attempt = Attempt(
        ref=record.ref,
        token=record.token,
        backend=record.backend,
        inputs=record.inputs,
        state=state,
        created_at=NOON,
        plan_id="plan-1",
        provenance=record.provenance,
    )
    intent = Intent(
        token=attempt.token,
        address=address,
        owner="run.yaml",
        action="create",
        attempt=number,
        plan_id="plan-1",
        created_at=NOON,
        launch=record,
    )
    resource = Resource(
        address=address, backend="local", owner="run.yaml", spec=attempt.inputs.spec, last=attempt
    )
    return Launched(record=record, intent=intent, resource=resource, attempt=attempt)


@pytest.fixture
def journal(place: SharedPlace) -> Iterator[FileJournal]:
    """The journal of files in the place of a test."""
    with closing(shared_journal(place, "default")) as opened:
        assert isinstance(opened, FileJournal)
        yield opened


def fill(journal: FileJournal, *numbers: int) -> None:
    for number in numbers:
        assert journal.append(number, f"entry {number}") is not None


def compacted(journal: FileJournal, number: int) -> None:
    assert journal.put_checkpoint(number, b"all before")
    journal.drop_before(number)


@pytest.fixture
def launch() -> Callable[..., Launched]:
    return make_launch


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / ".sgpu" / "default" / "state.db")


@pytest.fixture
def filled(store: SqliteStore) -> SqliteStore:
    """One run that is running, and a backup from a second session."""
    done = make_launch()
    with store.lock("apply", lineage="lin") as writer:
        writer.begin(done.intent)
        writer.launched(done.intent, done.resource, done.attempt)
    with store.lock("apply", lineage="lin") as writer:
        writer.plan_applied("plan-1")
    return store
