"""An entry of a shared state that somebody has written by another way: each of its fields is left
out, or is of another kind. It is named by its number, or it can be read and shown."""

import gzip
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.errors import StateError
from sgpu_decl.model.address import Address, cell_order
from sgpu_decl.model.backend_kinds import kind_named
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.job import JobHandle
from sgpu_decl.model.jsonable import canonical
from sgpu_decl.model.project_home import ProjectHome
from sgpu_decl.model.state import State
from sgpu_decl.storing.journal import ops
from sgpu_decl.storing.journal.entry import NO_ENTRY, Author, JournalEntry, digest
from sgpu_decl.storing.journal.log import log_entry
from sgpu_decl.storing.journal.port import Stored
from sgpu_decl.storing.journal.replica import Replica
from sgpu_decl.storing.sqlite import queries
from sgpu_decl.storing.sqlite.lock_row import new_lock
from sgpu_decl.storing.state_json import state_to_json
from tests.sampling import sampled, strided
from tests.storing.conftest import NOON, make_launch
from tests.support import some

BAD: tuple[Any, ...] = (
    10**30, True, -1, 1.5, float("nan"), "", "\0", "x", "x" * 10_000, "\ud800", [], {}, None, [[]],
    {"a": 1}, "9999-12-31T23:59:59-23:00",
)  # fmt: skip
REFERENCES = {
    "local": {"host": "h", "id": "i", "project": "/p"},
    "ray": {"folder": "/s/1", "address": "http://h:8265", "session": "s", "machine": "m"},
    "databricks": {
        "folder": "/s/1", "host": "https://w", "workspace": "1", "user": "u", "run_id": 5,
        "submitted": 1.5, "task": "t", "after": {},
    },
}  # fmt: skip

HANDLE = str(JobHandle(id="12", workspace="https://w", token="t"))


def launched(backend: str, number: int = 1) -> Any:
    made = make_launch(number=number)
    reference = json.dumps(REFERENCES[backend])
    attempt = replace(made.attempt, backend=backend, reference=reference)
    record = replace(made.record, backend=backend, reference=reference)
    return replace(
        made,
        attempt=attempt,
        intent=replace(made.intent, launch=record),
        resource=replace(made.resource, backend=backend, last=attempt),
    )


def entries(backend: str) -> dict[str, ops.Op]:
    """An entry of each kind, which fits after `before`."""
    made, packages = launched(backend), PackageList.from_text('[["torch","2.0"]]')
    job = replace(made.resource, address=Address.parse("job.nightly"), last=None, remote=HANDLE)
    making = replace(made.intent, address=job.address, launch=None, job=job)
    state = State(
        lineage="lin",
        serial=9,
        resources={made.resource.address: made.resource},
        intents=(launched(backend, 2).intent,),
        package_lists={packages.digest: packages},
    )
    return {
        "lock": ops.lock(new_lock("apply"), seconds=60.0),
        "unlock": ops.unlock("abc"),
        "claim": ops.claim(ProjectHome(repository="h/p", folder=".")),
        "begin": ops.begin(launched(backend, 2).intent),
        "launched": ops.launched(made.intent, made.resource, made.attempt),
        "made": ops.made(making, job),
        "abandon": ops.abandon(made.intent),
        "record_resource": ops.record_resource(made.resource),
        "record_job": ops.record_resource(replace(job, backend="databricks")),
        "record_packages": ops.record_packages([packages]),
        "record_attempts": ops.record_attempts([replace(made.attempt, exit_code=1, ended_at=NOON)]),
        "plan_applied": ops.plan_applied("p"),
        "move": ops.move(Address.run("train"), Address.run("other")),
        "remove": ops.remove(Address.run("train")),
        "replace": ops.replace(state, [made.attempt]),
    }


class Entries:
    """The entries of a store, by their texts."""

    name = "the store"

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)
        self.packed: bytes | None = None

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        found = enumerate(self.texts[number:], number + 1)
        return [Stored(number=at, text=text, at=NOON) for at, text in found][:most]

    def checkpoint(self) -> tuple[int, bytes] | None:
        return None if self.packed is None else (len(self.texts), self.packed)

    oldest_checkpoint = checkpoint


def text_of(number: int, prev: str, serial: int, changes: Sequence[Any]) -> str:
    author = Author(id="a", who="w", host="h", operation="apply", tool_version="1")
    entry = JournalEntry(
        number=number, prev=prev, lineage="lin", serial=serial, at=NOON, writer=author, ops=()
    )
    return json.dumps({**json.loads(entry.text), "ops": list(changes)}, sort_keys=True)


def before(backend: str) -> list[str]:
    made = launched(backend)
    first = text_of(1, NO_ENTRY, 1, [ops.begin(made.intent)])
    return [
        first,
        text_of(2, digest(first), 2, [ops.launched(made.intent, made.resource, made.attempt)]),
    ]


def mutations(value: Any) -> Iterator[tuple[str, Any]]:
    """A value with each part left out or of another kind, also inside of texts that are JSON."""
    if isinstance(value, str) and value[:1] in "{[" and value:
        for where, changed in mutations(json.loads(value)):
            yield f"text {where}", json.dumps(changed)
    if isinstance(value, dict):
        for key in value:
            rest = {name: item for name, item in value.items() if name != key}
            yield f"without {key}", rest
            for where, changed in mutations(value[key]):
                yield f"{key} {where}", {**value, key: changed}
    elif isinstance(value, list):
        for at, item in enumerate(value):
            for where, changed in mutations(item):
                yield f"{at} {where}", [*value[:at], changed, *value[at + 1 :]]
    for bad in BAD:
        yield f"= {str(bad)[:20]!r}", bad


def check(replica: Replica, journal: Entries, text: str) -> bool:
    """Whether an entry is refused in words, with its number; else it has to be shown."""
    journal.texts.append(text)
    stored = journal.after(len(journal.texts) - 1)[0]
    try:
        with suppress(StateError):
            log_entry(stored, store=journal.name)
        refused = refusal(replica)
    finally:
        journal.texts.pop()
    if refused is not None:
        assert refused.code in ("state_unusable", "state_newer"), refused
        assert f"entry {stored.number} of the state in `the store`" in refused.message
        assert refused.hint
        return True
    everything = some(replica.read(queries.everything_of))
    json.dumps(state_to_json(everything))
    replica.head()
    for resource in everything[0].resources.values():
        if resource.remote is not None:
            assert JobHandle.parse(resource.remote).id.isdecimal() or resource.backend == "local"
    for attempt in everything[1]:
        cell_order(attempt.ref.address, attempt.inputs.cell)
        canonical(attempt.inputs.spec.fields)
        if attempt.reference is not None and attempt.backend in REFERENCES:
            check_reference = some(kind_named(attempt.backend).check_reference)
            check_reference(attempt.reference)
    return False


def refusal(replica: Replica) -> StateError | None:
    try:
        replica.catch_up()
    except StateError as error:
        return error
    return None


KINDS = [(backend, kind) for backend in REFERENCES for kind in entries("local")]


@pytest.mark.parametrize("case", sampled(KINDS, quick=0), ids="-".join)
def test_a_damaged_entry_is_named_or_read(tmp_path: Path, case: tuple[str, str]) -> None:
    backend, kind = case
    journal = Entries(before(backend))
    replica = Replica(tmp_path / "one" / "replica.db", journal)
    replica.catch_up()
    op, tail = entries(backend)[kind], digest(journal.texts[-1])
    serial = 2 + (kind not in ("lock", "unlock", "claim"))
    whole = {"replace": 10}.get(kind, serial)
    shutil.copytree(tmp_path / "one", tmp_path / "kept")

    def fresh() -> Replica:
        shutil.rmtree(tmp_path / "one")
        shutil.copytree(tmp_path / "kept", tmp_path / "one")
        return Replica(tmp_path / "one" / "replica.db", journal)

    assert not check(replica, journal, text_of(3, tail, whole, [op])), "the whole one is read"
    replica, refused = fresh(), 0
    changes = list(mutations(op))
    for where, changed in strided(changes, max(1, len(changes) // 100)):
        try:
            if check(replica, journal, text_of(3, tail, whole, [changed])):
                refused += 1
                continue
        except Exception as error:
            raise AssertionError(where) from error
        replica = fresh()
    assert refused >= len(BAD)


@pytest.mark.parametrize(
    ("backend", "field", "value"),
    [
        ("local", "cell", "x"),
        ("local", "token", "a\0b"),
        ("local", "spec", '{"gpus":NaN}'),
        ("local", "spec", '{"gpus":1e999}'),
        ("local", "code_digest", "\ud800"),
        ("ray", "reference", '{"folder":"/s/\\u0000"}'),
        ("ray", "reference", ""),
        ("databricks", "reference", '{"folder":"\\ud800"}'),
    ],
)
def test_a_value_that_no_command_can_use_is_named(
    tmp_path: Path, backend: str, field: str, value: str
) -> None:
    journal = Entries(before(backend))
    replica = Replica(tmp_path / "replica.db", journal)
    replica.catch_up()
    op: Any = entries(backend)["record_attempts"]
    op["attempts"][0][field] = value
    assert check(replica, journal, text_of(3, digest(journal.texts[-1]), 3, [op]))


def test_an_entry_that_is_no_entry_is_named(tmp_path: Path) -> None:
    journal = Entries(before("local"))
    replica = Replica(tmp_path / "replica.db", journal)
    replica.catch_up()
    entry = json.loads(text_of(3, digest(journal.texts[-1]), 3, [ops.plan_applied("p")]))
    for where, changed in mutations(entry):
        if not where.startswith(("at ", "writer ", "ops ", "prev ", "= ")):
            assert check(replica, journal, json.dumps(changed)), where
    for text in ("", "{", "[" * 100_000, "1" * 10_000, '{"v":1}'):
        assert check(replica, journal, text)


@pytest.mark.expensive
def test_a_checkpoint_that_unpacks_to_more_than_tables_hold_is_left_alone(tmp_path: Path) -> None:
    journal = Entries(before("local"))
    journal.packed = gzip.compress(bytes(100 << 20), compresslevel=9)
    replica = Replica(tmp_path / "replica.db", journal)
    replica.catch_up()
    assert replica.position().number == 2
