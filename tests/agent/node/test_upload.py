"""Reports that a node uploads, without the values of secrets."""

import json
import re
from binascii import crc32
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.node.node_report import read_report
from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.agent.node.upload import NodeUpload
from sgpu_decl.agent.system.secrets import Redactor, secret_names
from sgpu_decl.backends.remote.watching.remote_results import RemoteResults
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.folder import FolderPlace
from sgpu_decl.tracking.store_location import credential_variables, secret_credentials

SECRETS = ["failed", "state", "ranks", 'quo"ted']


def uploaded(tmp_path: Path, **files: bytes) -> Path:
    run, records, target = (tmp_path / name for name in ("run", "records", "target"))
    run.mkdir()
    records.mkdir()
    for name, data in files.items():
        (records / name.replace("_", ".")).write_bytes(data)
    upload(run, target)
    return target


def upload(run: Path, target: Path, **platform: Any) -> dict[str, Any]:
    """Upload all; return the report."""
    records, table = str(run.parent / "records"), PlatformTable(**platform)
    files = NodeUpload(str(run), records, str(target), Redactor(SECRETS), table)
    files.upload("output", exit_code=0)
    return read_report(str(target)) or {}


def test_a_secret_that_is_a_word_of_the_agent_leaves_the_outcome_readable(tmp_path: Path) -> None:
    cause = {"rank": 0, "class": "exception", "traceback": None, "simultaneous": []}
    outcome = {"state": "failed", "ranks": [], "first_cause": {**cause, "summary": 'with quo"ted'}}
    target = uploaded(tmp_path, outcome_json=json.dumps(outcome).encode())

    expected = {"state": "failed", "ranks": [], "first_cause": {**cause, "summary": "with ***"}}
    assert (read_report(str(target)) or {})["outcome"] == expected


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


def test_files_beyond_the_limit_of_the_platform_are_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run/output").mkdir(parents=True)
    for name in "abc":
        (tmp_path / "run/output" / name).touch()

    report = upload(tmp_path / "run", tmp_path / "target", most_files=2, large_files="the attic")

    assert (report["left"], report["incomplete"]) == (["c"], None)
    assert sorted(path.name for path in (tmp_path / "target/output").iterdir()) == ["a", "b"]
    said = capfd.readouterr()
    assert "1 files of SGPU_OUTPUT_DIR (0 B) are not uploaded, such as `c`" in said.out + said.err
    assert "the limit is 2 files of 512.0 MB in all; write large ones to the attic" in (
        said.out + said.err
    )


def test_results_beyond_the_limit_of_a_node_are_named_and_the_others_come(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ranks = tmp_path / "run/ranks"
    for rank, size in enumerate((10, 600_000_000, 20)):
        (ranks / str(rank)).mkdir(parents=True)
        (ranks / str(rank) / "output.json").write_text('{"pickle": "output.pkl", "repr": "<it>"}')
        with (ranks / str(rank) / "output.pkl").open("wb") as file:
            file.truncate(size)

    upload(tmp_path / "run", tmp_path / "target", large_files="the attic")

    brought = tmp_path / "target/ranks"
    assert [path.stat().st_size for path in sorted(brought.rglob("output.pkl"))] == [10, 20]
    shown = [json.loads((brought / rank / "output.json").read_text())["repr"] for rank in "012"]
    large = "<600.0 MB, left on its node: the limit is 512.0 MB for the results of a node>"
    assert shown == ["<it>", large, "<it>"]
    said = capfd.readouterr()
    assert "what rank 1 returned (600.0 MB) is not uploaded" in said.out + said.err


@pytest.mark.parametrize("declared", [{}, {"large_files": "the attic"}])
def test_what_a_node_leaves_is_said_here_in_words_of_its_own_platform(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], declared: dict[str, Any]
) -> None:
    run, launch = tmp_path / "run", tmp_path / "launch"
    (run / "output").mkdir(parents=True)
    with (run / "output/large").open("wb") as file:
        file.truncate(600_000_000)
    upload(run, launch / "back/0/node_0", **declared)
    said = "".join(capfd.readouterr())

    output = RemoteResults(FolderPlace(launch), str(launch), tmp_path / "local").output(0, Quiet())

    assert output.lacking == ("large",)
    for words in (said, output.why):
        assert declared.get("large_files", "a storage that outlives the nodes") in words
        assert not re.search("volume|databricks|workspace|ray|cluster", words, re.IGNORECASE)
