"""`--json-into`: what happens, as JSON in a file. No fault of the file harms an apply."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sgpu_decl.config.schemas import documents
from tests.cli.conftest import Shell
from tests.support import PATIENCE

RUN = "name: a\ngpus: 1\ntype: CPU\ncommand: 'exit 3'\nmlflow: {enabled: false}\ngrace: 500ms\n"
SCHEMA = Draft202012Validator(documents()["stream"])


def events(text: str) -> list[dict[str, Any]]:
    """The events of a file; each fits the schema."""
    found = [json.loads(line) for line in text.splitlines()]
    for event in found:
        SCHEMA.validate(event)
    return found


def types(found: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in found]


@pytest.fixture
def project(sgpu: Shell) -> Shell:
    sgpu.write("run.yaml", RUN)
    return sgpu


def test_an_apply_writes_what_happens_beside_its_output(project: Shell) -> None:
    told = project.exits(5, "apply", "-y", "-o", "json", "--json-into", "e.jsonl")
    found = events((project.folder / "e.jsonl").read_text())
    assert types(found)[:2] == ["version", "plan"]
    assert found[1]["plan"] == told.json["data"]["plan"]
    changes = [event for event in found if event["type"].startswith("change_")]
    assert [(event["type"], event["address"], event["attempt"]) for event in changes] == [
        ("change_started", "run.a", 1),
        ("change_done", "run.a", 1),
    ]
    states = [event["state"] for event in found if event["type"] == "run_state"]
    assert states[-1] == "failed"
    assert found[-1]["type"] == "summary"
    assert (found[-1]["exit_code"], found[-1]["error"]) == (5, told.json["error"])
    # The file is no code: it changes no digest, now or later.
    after = project.data("plan", "--files")
    assert after["changes"][0]["reason"] == "failed_not_retried"
    kept = {file["path"]: file["rule"] for file in after["files"][0]["kept_back"]}
    assert kept["e.jsonl"] == "own_output"


def test_a_plan_writes_its_checks_and_how_it_ended(project: Shell) -> None:
    told = project.here("plan", "--detailed-exitcode", "--json-into", "e.jsonl")
    found = events((project.folder / "e.jsonl").read_text())
    assert types(found)[:2] == ["version", "plan"]
    assert found[-1] == {**found[-1], "type": "summary", "exit_code": told.code, "error": None}
    assert told.code == 2
    codes = [event["diagnostic"]["code"] for event in found if event["type"] == "diagnostic"]
    assert codes == [check["id"] for check in found[1]["plan"]["checks"]]


def test_an_invalid_file_ends_the_events_with_its_errors(project: Shell) -> None:
    project.write("run.yaml", RUN + "retries: 2\n")
    for command in (("plan",), ("apply", "-y")):
        project.exits(1, *command, "--json-into", "e.jsonl")
        found = events((project.folder / "e.jsonl").read_text())
        assert types(found) == ["version", "diagnostic", "summary"]
        assert found[1]["diagnostic"]["code"] == "unknown_key"
        assert found[2]["exit_code"] == 1


def test_a_file_of_something_else_is_not_overwritten(project: Shell) -> None:
    project.write("data.json", "{}")
    told = project.exits(1, "plan", "--json-into", "data.json")
    assert "`data.json` exists and holds no events" in told.err
    assert (project.folder / "data.json").read_text() == "{}"
    for name in ("events.txt", "run.yaml"):
        told = project.exits(1, "plan", "--json-into", name)
        assert f"`{name}` is no name for events" in told.err
        assert "name that ends with one of .jsonl, .ndjson, .json" in told.err
    assert (project.folder / "run.yaml").read_text() == RUN
    told = project.exits(1, "plan", "--json-into", "absent/e.jsonl")
    assert "events cannot be written to `absent/e.jsonl`" in told.err
    (project.folder / "e.jsonl").touch()
    for _ in range(2):
        project.done("plan", "--json-into", "e.jsonl")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_does_not_harm_the_apply(project: Shell) -> None:
    told = project.done("apply", "-y", "--detach", "--json-into", "/dev/full")
    assert told.err.count("no more events are written to `/dev/full`: ENOSPC") == 1
    project.exits(5, "wait", "a")


def test_a_reader_that_goes_away_or_stops_reading_does_not_harm_the_apply(
    project: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu_decl.cli.event_file._PATIENCE", 50)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    told = project.exits(1, "plan", "--json-into", str(pipe))
    assert f"events cannot be written to `{pipe}`: ENXIO" in told.err
    # One that stops reading: the plan of many runs is larger than what a pipe holds.
    runs = "".join(f"  r{n}: {{gpus: 1, type: CPU, command: 'x'}}\n" for n in range(300))
    project.write("sgpu.yml", f"project: {{name: p}}\nruns:\n{runs}")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert "no more events" in project.done("plan", "--json-into", str(pipe)).err
    os.close(reader)


def test_a_pipe_that_is_read_gets_every_event(project: Shell, tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    runs = "".join(f"  r{n}: {{gpus: 1, type: CPU, command: 'x'}}\n" for n in range(300))
    project.write("sgpu.yml", f"project: {{name: p}}\nruns:\n{runs}")
    keep = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that there is a reader at once
    thread = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    thread.start()
    project.done("plan", "--json-into", str(pipe))
    thread.join(PATIENCE)
    os.close(keep)
    assert types(events(read[0]))[-1] == "summary"
    assert len(read[0]) > 65_536
