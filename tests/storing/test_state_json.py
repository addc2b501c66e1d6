import json
from collections.abc import Callable
from dataclasses import replace

from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.environment import Package, PackageList
from sgpu_decl.model.job import JobHandle
from sgpu_decl.model.jsonable import NO_FIELDS, Spec
from sgpu_decl.model.state import Resource
from sgpu_decl.storing.sqlite.store import SqliteStore
from sgpu_decl.storing.state_json import state_from_json, state_to_json
from tests.storing.conftest import Launched
from tests.support import some


def test_nothing_applied_yet_is_an_empty_state(store: SqliteStore) -> None:
    assert state_to_json(store.read_all()) == {
        "format_version": "1.1",
        "lineage": None,
        "serial": 0,
        "resources": [],
        "intents": [],
        "package_lists": {},
    }


def test_everything_recorded_is_in_it_as_json(
    filled: SqliteStore, launch: Callable[..., Launched]
) -> None:
    again = launch(number=2)
    with filled.lock("apply", lineage="lin") as writer:
        writer.begin(again.intent)
    pulled = json.loads(json.dumps(state_to_json(filled.read_all())))
    assert pulled["serial"] == 4
    assert pulled["resources"] == [
        {
            "address": "run.train",
            "kind": "run",
            "backend": "local",
            "owner": "run.yaml",
            "gone": False,
            "numbered": 1,
            "remote": None,
            "spec": {"gpus": 2},
            "attempts": [
                {
                    "attempt": 1,
                    "state": "running",
                    "token": "token-train-1",
                    "backend": "local",
                    "fingerprint": "sha256:aa",
                    "code_digest": "sha256:bb",
                    "environment_digest": None,
                    "packages_digest": None,
                    "pool": "p-1",
                    "cell": None,
                    "counted": None,
                    "created_at": "2026-05-01T12:00:00.250000Z",
                    "started_at": None,
                    "ended_at": None,
                    "exit_code": None,
                    "class": None,
                    "plan_id": "plan-1",
                    "reference": None,
                    "reason": "first_run",
                    "commit": "c0ffee",
                    "dirty": True,
                    "spec": None,
                    "formerly": [],
                }
            ],
        }
    ]
    assert pulled["intents"] == [
        {
            "token": "token-train-2",
            "address": "run.train",
            "owner": "run.yaml",
            "action": "create",
            "attempt": 2,
            "plan_id": "plan-1",
            "created_at": "2026-05-01T12:00:00.250000Z",
            "launch": to_json(again.intent.launch),
            "job": None,
        }
    ]


def test_what_was_printed_is_read_as_it_was_recorded(
    filled: SqliteStore, launch: Callable[..., Launched]
) -> None:
    second, third, ended = launch(number=2), launch(number=3), launch("done")
    packages = PackageList.of([Package("numpy", "2.1")])
    spec = replace(second.attempt.inputs, spec=Spec('{"gpus":4}'), packages_digest=packages.digest)
    second = replace(second, attempt=replace(second.attempt, inputs=spec, exit_code=3))
    job = Resource(
        address=Address(Kind.JOB, "nightly"), backend="databricks", owner="sgpu.yml",
        spec=NO_FIELDS, last=None, remote=str(JobHandle(id="1", workspace="https://w", token="t")),
    )  # fmt: skip
    making = replace(third.intent, token="t", address=job.address, launch=None, job=job)
    with filled.lock("apply", lineage="lin") as writer:
        writer.record_packages([packages])
        writer.launched(second.intent, second.resource, second.attempt)
        writer.launched(ended.intent, ended.resource, ended.attempt)
        writer.move(ended.intent.address, Address.run("moved"))
        writer.record_resource(job)
        writer.begin(third.intent, making)
    recorded = some(filled.read_all())
    state, attempts = state_from_json(json.loads(json.dumps(state_to_json(recorded))))
    assert attempts == recorded[1]
    assert replace(state, resources={}) == replace(recorded[0], resources={})
    assert state.resources == dict(recorded[0].resources)
