"""Where the folder of an attempt is after its run got another address."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import NO_FIELDS
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord

FIRST, SECOND, NOW = Address.run("first"), Address.run("second", "n=1"), Address.run("now")
RECORD = LaunchRecord(
    ref=AttemptRef(NOW, 3),
    backend="local",
    token="sgpu-a",
    lineage="lin",
    owner="sgpu.yml",
    inputs=LaunchInputs(spec=NO_FIELDS, fingerprint=""),
    formerly=(FIRST, SECOND),
)


@pytest.fixture
def layout(tmp_path: Path) -> AttemptLayout:
    return AttemptLayout(tmp_path)


def make(layout: AttemptLayout, address: Address, token: str = RECORD.token) -> Path:
    folder = layout.attempt(AttemptRef(address, 3))
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps({"token": token}))
    return folder


@pytest.mark.parametrize("address", [FIRST, SECOND])
def test_it_is_moved_from_where_it_was(layout: AttemptLayout, address: Address) -> None:
    before = make(layout, address)
    assert layout.found(RECORD) == layout.attempt(RECORD.ref)
    assert not before.exists()
    assert (layout.attempt(RECORD.ref) / "spec.json").is_file()
    assert layout.found(RECORD) == layout.attempt(RECORD.ref)


def test_that_of_another_attempt_stays(layout: AttemptLayout) -> None:
    other = make(layout, SECOND, "sgpu-b")
    before = make(layout, FIRST)
    assert layout.found(RECORD) == layout.attempt(RECORD.ref)
    assert other.is_dir()
    assert not before.exists()


def test_it_stays_where_something_else_is_in_the_way(layout: AttemptLayout) -> None:
    before, other = make(layout, FIRST), make(layout, NOW, "sgpu-b")
    assert layout.found(RECORD) == before
    assert json.loads((other / "spec.json").read_text()) == {"token": "sgpu-b"}


def test_where_nothing_was_left_nothing_is_made(layout: AttemptLayout, tmp_path: Path) -> None:
    assert layout.found(RECORD) == layout.attempt(RECORD.ref)
    assert layout.found(replace(RECORD, formerly=())) == layout.attempt(RECORD.ref)
    assert list(tmp_path.iterdir()) == []
