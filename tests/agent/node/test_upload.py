"""Reports that a node uploads, without the values of secrets."""

import json
from binascii import crc32
from pathlib import Path

from sgpu_decl.agent.node.upload import NodeUpload
from sgpu_decl.agent.redactor import Redactor
from sgpu_decl.agent.secret_environ import secret_names
from sgpu_decl.tracking.store_location import credential_variables, secret_credentials

SECRETS = ["failed", "state", "ranks", 'quo"ted']


def uploaded(tmp_path: Path, **files: bytes) -> Path:
    run, records, target = (tmp_path / name for name in ("run", "records", "target"))
    run.mkdir()
    records.mkdir()
    for name, data in files.items():
        (records / name.replace("_", ".")).write_bytes(data)
    NodeUpload(str(run), str(records), str(target), Redactor(SECRETS)).upload("output")
    return target


def test_a_secret_that_is_a_word_of_the_agent_leaves_the_outcome_readable(tmp_path: Path) -> None:
    outcome = {"state": "failed", "ranks": [], "first_cause": {"summary": 'with quo"ted'}}
    target = uploaded(tmp_path, outcome_json=json.dumps(outcome).encode())

    expected = {"state": "failed", "ranks": [], "first_cause": {"summary": "with ***"}}
    assert json.loads((target / "outcome.json").read_text()) == expected


def test_masked_events_have_a_checksum_of_their_own(tmp_path: Path) -> None:
    body = json.dumps({"event": "state", "reason": "the state"}).encode()
    target = uploaded(tmp_path, events_log=b"%08x %s\n{torn ranks" % (crc32(body), body))

    checksum, _, rest = (target / "events.log").read_bytes().partition(b" ")
    first, torn = rest.split(b"\n")
    assert int(checksum, 16) == crc32(first)
    assert json.loads(first) == {"event": "state", "reason": "the ***"}
    assert torn == b"{torn ***"


def test_user_names_and_hosts_of_a_store_are_no_secrets() -> None:
    names = {}
    for uri in ("https://server", "databricks"):
        tracker = {
            "credentials": credential_variables(uri),
            "secrets": secret_credentials(uri),
        }
        names[uri] = secret_names({"secrets": {"MINE": "env:MINE"}, "tracker": tracker})

    assert names == {
        "https://server": ["MINE", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD"],
        "databricks": ["MINE", "DATABRICKS_TOKEN", "DATABRICKS_CLIENT_SECRET"],
    }
