"""States that an older sgpu wrote, and what an older one makes of a newer state."""

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu_decl.model.address import Address
from sgpu_decl.model.environment import Package, PackageList
from sgpu_decl.model.launch import Provenance
from sgpu_decl.storing.sqlite.store import SqliteStore
from tests.storing.conftest import make_launch
from tests.support import some

TRAIN = Address.run("train")
# A launch with one more field, read from a state and written to it, in a process of its own.
WITH_ONE_MORE_FIELD = """
import dataclasses, sys
from pathlib import Path
from sgpu_decl.model import launch
launch.LaunchInputs = dataclasses.make_dataclass(
    "LaunchInputs", [("one_more", str | None, dataclasses.field(default=None))],
    bases=(launch.LaunchInputs,), frozen=True, slots=True, kw_only=True,
)
launch.LaunchRecord.__dataclass_fields__["inputs"].type = launch.LaunchInputs
from sgpu_decl.model.address import Address
from sgpu_decl.storing.sqlite.store import SqliteStore
from tests.storing.conftest import make_launch

store, run = SqliteStore(Path(sys.argv[1])), Address.run("train")
state = store.read()
assert [it.inputs.one_more for it in store.history(run)] == [None]
assert [it.launch.inputs.one_more for it in state.intents] == [None]
assert [it.inputs.one_more for it in state.active] == [None]
second = make_launch(number=2)
placed = dataclasses.replace(second.attempt.inputs, one_more="rack 7")
record = dataclasses.replace(second.intent.launch, inputs=placed)
attempt = dataclasses.replace(second.attempt, inputs=placed)
with store.lock("apply", lineage="lin") as writer:
    writer.begin(dataclasses.replace(second.intent, launch=record))
    assert writer.state.intents[0].launch == record
    writer.launched(second.intent, second.resource, attempt)
    assert writer.state.resources[run].last == attempt
assert [it.inputs.one_more for it in store.history(run)] == [None, "rack 7"]
"""


@pytest.fixture
def older(tmp_path: Path) -> SqliteStore:
    """A state of version 3 as its first sgpu wrote it."""
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as database:
        database.executescript(Path(__file__).with_name("state_v3.sql").read_text())
    database.close()
    return SqliteStore(path)


def test_a_state_of_version_3_is_read_whole_and_written(older: SqliteStore) -> None:
    first, second = make_launch(), make_launch(number=2)
    state = some(older.read())
    assert (state.lineage, state.serial) == ("lin", 6)
    launched = replace(first.attempt, provenance=Provenance())  # was not recorded then
    begun = replace(second.record, provenance=Provenance())
    assert older.history(TRAIN) == (launched,)
    assert state.active == (launched,)
    assert state.intents == (replace(second.intent, launch=begun),)
    assert state.resources[Address.parse("job.nightly")].remote == '{"id":7}'
    packages = PackageList.of([Package("torch", "2.13.0")])
    assert state.package_lists == {packages.digest: packages}
    with older.lock("apply", lineage="another") as writer:
        assert writer.applied("plan-1")
        writer.launched(second.intent, second.resource, second.attempt)
    assert older.history(TRAIN) == (launched, second.attempt)


def test_reading_an_older_state_leaves_every_byte(older: SqliteStore) -> None:
    with sqlite3.connect(older.path) as database:
        database.execute("ALTER TABLE attempts DROP COLUMN pool")
    database.close()
    lacking = older.path.read_bytes()
    assert [item.inputs.placement for item in older.history(TRAIN)] == [None]
    assert older.path.read_bytes() == lacking
    assert [path.name for path in older.path.parent.iterdir()] == ["state.db"]


def test_a_new_field_of_a_launch_is_null_in_an_older_state_and_written_to_it(
    older: SqliteStore,
) -> None:
    code = [sys.executable, "-c", WITH_ONE_MORE_FIELD, str(older.path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(code, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    second = make_launch(number=2)
    assert older.history(TRAIN)[1] == second.attempt  # the older sgpu goes on with it
    with older.lock("apply", lineage="lin") as writer:
        third = make_launch(number=3)
        writer.begin(third.intent)
        writer.launched(third.intent, third.resource, third.attempt)
    assert older.history(TRAIN)[2] == third.attempt
