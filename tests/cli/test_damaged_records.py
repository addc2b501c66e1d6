"""What is recorded of runs, and what they left, changed by something other than sgpu. A command
refuses it in words, or shows it; none ends as a fault of sgpu (`Shell.here` looks for that)."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.model.jsonable import canonical, digest
from sgpu_decl.model.times import from_text
from sgpu_decl.storing.journal import ops
from sgpu_decl.storing.journal.entry import Author, JournalEntry
from sgpu_decl.storing.journal.entry import digest as entry_digest
from sgpu_decl.storing.journal.op_checks import check_op
from sgpu_decl.storing.state_json import UNREADABLE, state_from_json
from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from tests.backends.ray.answers import answering, recorded
from tests.cli.conftest import Shell
from tests.sampling import strided
from tests.storing.test_damaged_entries import mutations
from tests.support import require

PROJECT = """project: {{name: p}}
{state}
runs:
  hello: {{gpus: 1, type: {type}, {more}}}
"""
LOCAL = "command: [echo, hello], mlflow: {enabled: false}"
CODE = """def main():
    raise ValueError("no")
"""
JOB = """jobs:
  nightly:
    notebook: {path: /Workspace/Shared/report}
    schedule: 0 30 2 * * ?
    timezone: Europe/Berlin
"""
READERS = (
    "status", "show hello -o json", "logs hello", "results hello", "fetch hello",
    "diff hello#1 hello#1", "stacks hello", "plan", "plan --rerun run.hello -o json",
    "state list", "state pull", "state log", "gc --dry-run", "cancel hello --no-wait",
)  # fmt: skip
ENDING = ("destroy -y", "gc -y --keep-last 0 --all")
FEW_AND_MANY = pytest.mark.parametrize("most", [2, pytest.param(30, marks=pytest.mark.expensive)])


def some(ways: Sequence[tuple[str, Any]], most: int) -> Sequence[tuple[str, Any]]:
    return strided(ways, max(1, len(ways) // most))


def restore(folder: Path, kept: Path) -> None:
    """Have the files of a state as they were, but for the id of its folder, which a copy lacks."""
    for path in folder.iterdir():
        if path.name != "site":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(kept, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("site"))


def read_all(shell: Shell, where: str, commands: Sequence[str]) -> None:
    for command in commands:
        try:
            answer = shell.here(*command.split())
        except AssertionError as error:
            raise AssertionError(f"{where}: `{command}`") from error
        assert answer.code in (0, 1, 5), (where, command, answer.err)


def on_a_cluster(folder: Path, closed: ExitStack) -> str:
    """A cluster of Ray that takes each job, and runs it until it is asked to stop."""
    cluster = closed.enter_context(answering({**recorded("2.60.0"), "/api/packages/gcs/*": {}}))
    node = cluster.by_path["/api/v0/nodes"]["data"]["result"]["result"][0]["node_id"]

    def job() -> dict[str, Any]:
        body = [json.loads(body) for path, body in cluster.bodies if path == "POST /api/jobs/"][-1]
        row = {"status": "RUNNING", "type": "SUBMISSION", "driver_node_id": node}
        return {**row, "submission_id": body["submission_id"], "metadata": body["metadata"]}

    cluster.by_path |= {"/api/jobs/": [], "/api/jobs/*": job}
    (folder / "storage").mkdir()
    return f"{LOCAL}, backend: {{kind: ray, address: '{cluster.url}', storage: {folder}/storage}}"


@pytest.fixture
def launched(request: pytest.FixtureRequest, sgpu: Shell, tmp_path: Path) -> Iterator[Shell]:
    """A project with a shared state, in which a run was launched on a backend."""
    shared, jobs, kind = tmp_path / "shared", "", "CPU"
    shared.mkdir()
    (shared / ".sgpu-state").touch()
    state = f"state: {{kind: folder, path: {shared}}}"
    with ExitStack() as closed:
        more, words = LOCAL, ["apply", "-y"]
        if request.param == "ray":
            more = on_a_cluster(tmp_path, closed)
        elif request.param == "databricks":
            require("databricks.sdk")
            full = ExecutionSettings(capacity={"GPU_1xA10": 0})
            server = closed.enter_context(WorkspaceServer(tmp_path / "there", execution=full))
            kind, jobs = "A10", JOB
            more = f"command: [echo, a], backend: {{kind: databricks, host: '{server.url}'}}"
            sgpu = replace(
                sgpu,
                environ={
                    **sgpu.environ,
                    "DATABRICKS_HOST": server.url,
                    "DATABRICKS_TOKEN": server.new_token(),
                },
            )
        words += [] if request.param == "local" else ["--detach"]
        sgpu.write("sgpu.yml", PROJECT.format(state=state, type=kind, more=more) + jobs)
        sgpu.done(*words)
        yield sgpu


def recorded_ways(shell: Shell, entries: Path) -> tuple[JournalEntry, list[Any]]:
    """The entry that comes next, and each op that it may have: the whole state, with one value
    changed that the check of entries lets pass."""
    state, attempts = state_from_json(json.loads(shell.here("state", "pull").out))
    last = max(entries.glob("*.json"))
    entry = JournalEntry(
        number=int(last.stem) + 1,
        prev=entry_digest(last.read_text()),
        lineage=state.lineage,
        serial=state.serial + 1,
        at=from_text(json.loads(last.read_text())["at"]),
        writer=Author(id="a", who="w", host="h", operation="apply", tool_version="1"),
        ops=(),
    )
    ways = []
    for where, op in mutations(ops.replace(state, attempts)):
        with suppress(*UNREADABLE):
            check_op(op)
            ways.append((where, op))
    return entry, ways


@FEW_AND_MANY
@pytest.mark.parametrize(
    "launched",
    ["local", *(pytest.param(kind, marks=pytest.mark.expensive) for kind in ("ray", "databricks"))],
    indirect=True,
)
def test_what_an_entry_may_hold_can_be_read_by_every_command(
    launched: Shell, tmp_path: Path, most: int
) -> None:
    entries = tmp_path / "shared/p/default/entries"
    folder, kept = launched.folder / ".sgpu/default", tmp_path / "kept"
    entry, ways = recorded_ways(launched, entries)
    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("replica.db*"))
    for where, op in some(ways, most):
        for path in entries.iterdir():
            if path.name >= f"{entry.number:012}":
                path.unlink()
        restore(folder, kept)
        text = json.dumps({**json.loads(entry.text), "ops": [op]}, sort_keys=True)
        (entries / f"{entry.number:012}.json").write_text(text)
        read_all(launched, where, READERS)


@FEW_AND_MANY
def test_a_state_is_pushed_if_every_command_can_read_it(
    sgpu: Shell, tmp_path: Path, most: int
) -> None:
    sgpu.write("sgpu.yml", PROJECT.format(state="", type="CPU", more=LOCAL))
    sgpu.done("apply", "-y")
    pulled = json.loads(sgpu.here("state", "pull").out)
    folder, kept = sgpu.folder / ".sgpu/default", tmp_path / "kept"
    shutil.copytree(folder, kept)
    (resource,) = pulled["resources"]
    grave = [
        (f"{name} = {bad}", {**pulled, "resources": [{**resource, name: bad}]})
        for name, bad in (("spec", None), ("numbered", "9999-12-31T23:59:59-23:00"), ("gone", 2))
    ]
    for where, changed in (*grave, *some(list(mutations(pulled)), most)):
        restore(folder, kept)
        sgpu.write("pushed.json", json.dumps(changed))
        if sgpu.here("state", "push", "pushed.json").code == 0:
            assert (where, changed) not in grave
            assert sgpu.here("state", "pull").code == 0, where
            read_all(sgpu, where, READERS)


@FEW_AND_MANY
def test_a_saved_plan_is_refused_or_shown_whatever_was_changed(sgpu: Shell, most: int) -> None:
    """Also where whoever changed it has written its checksum anew."""
    sgpu.write("sgpu.yml", PROJECT.format(state="", type="CPU", more=LOCAL))
    sgpu.done("plan", "--out", "one.plan")
    plan = json.loads((sgpu.folder / "one.plan").read_bytes())
    del plan["checksum"]
    for where, changed in some(list(mutations(plan)), most):
        with suppress(ValueError, TypeError):  # NaN has no checksum
            changed = {**changed, "checksum": digest(canonical(changed))}
        sgpu.write("two.plan", json.dumps(changed))
        for command in ("show two.plan", "show two.plan -o json", "apply -y --detach two.plan"):
            answer = sgpu.here(*command.split())
            assert answer.code in (0, 1, 3, 4, 64), (where, command, answer.err)


FILES = ("outcome.json", "status.json", "identity.json", "spec.json")
GRAVE = ("state = 'nan'", "ranks 0 = 'x'", "first_cause = 'x'", "exit_code = '{}'")


@pytest.mark.parametrize(
    ("name", "most"),
    [("outcome.json", 1), *(pytest.param(one, 30, marks=pytest.mark.expensive) for one in FILES)],
)
def test_the_files_of_an_attempt_are_shown_or_passed_over_whatever_they_hold(
    sgpu: Shell, tmp_path: Path, name: str, most: int
) -> None:
    more = "entrypoint: train.py:main, mlflow: {enabled: false}"
    sgpu.write("sgpu.yml", PROJECT.format(state="", type="CPU", more=more))
    sgpu.write("train.py", CODE)
    sgpu.exits(5, "apply", "-y")
    folder, kept = sgpu.folder / ".sgpu/default", tmp_path / "kept"
    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("agent.log"))
    ways = list(mutations(json.loads((kept / "runs/hello/1" / name).read_bytes())))
    chosen = [one for one in ways if name == "outcome.json" and one[0] in GRAVE]
    chosen = [*chosen, *some(ways, most), ("deep", None)]
    commands = ("status", "logs hello", "wait hello") if most == 1 else READERS
    for where, changed in chosen:
        restore(folder, kept)
        text = "[" * 100_000 if changed is None else json.dumps(changed)
        (folder / "runs/hello/1" / name).write_text(text)
        read_all(sgpu, f"{name} {where}", (*commands, *ENDING))


def test_an_attempt_with_a_config_that_is_not_known_here_is_shown_as_recorded(sgpu: Shell) -> None:
    """A newer sgpu may have launched it, with a field that this one does not know."""
    sgpu.write("sgpu.yml", PROJECT.format(state="", type="CPU", more=LOCAL))
    sgpu.done("apply", "-y")
    with sgpu.edited_state() as pulled:
        (resource,) = pulled["resources"]
        spec = {**resource["spec"], "backend": {"kind": "ray", "storage": "/s"}, "sharding": "new"}
        resource |= {"backend": "ray", "spec": spec}
        (attempt,) = resource["attempts"]
        attempt |= {"backend": "ray", "state": "running", "reference": "/s/runs/hello/1"}
        attempt |= {"ended_at": None, "exit_code": None}

    status = sgpu.here("status")

    assert "running" in status.out
    said = "the state has a config of `hello#1` that this sgpu cannot read: see `sharding` in it"
    assert said in status.out + status.err
    read_all(sgpu, "sharding", READERS)
