import json
from collections.abc import Callable

from sgpu_decl.storing.sqlite.store import SqliteStore
from sgpu_decl.storing.state_json import state_to_json
from tests.storing.conftest import Launched


def test_nothing_applied_yet_is_an_empty_state(store: SqliteStore) -> None:
    assert state_to_json(store.read_all()) == {
        "format_version": "1.0",
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
                }
            ],
        }
    ]
    assert pulled["intents"] == [
        {
            "token": "token-train-2",
            "address": "run.train",
            "action": "create",
            "attempt": 2,
            "plan_id": "plan-1",
            "created_at": "2026-05-01T12:00:00.250000Z",
        }
    ]
