"""Two clones of one project that share a state."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.local.local_launcher import LocalLauncher
from sgpu_decl.errors import BackendError, OutcomeUnknown, SgpuError
from sgpu_decl.model.state import IntentEnd
from sgpu_decl.storing.journal.writer import JournalWriter
from sgpu_decl.storing.stores import DATABRICKS, FOLDER, OBJECT, POSTGRES, SharedPlace, shared_store
from sgpu_decl.testing.contracts.killed_commands import dying
from tests.cli.conftest import Shell
from tests.faulty_proxy import faulty_proxy
from tests.object_server import ObjectServer
from tests.sampling import sampled
from tests.shared_places import break_lock, new_place
from tests.support import some, until
from tests.workspace_login import login

PROJECT = """project: {{name: p}}
state: {{kind: {kind}, {where}}}
runs:
  hello: {{gpus: 1, type: CPU, command: [echo, hello], mlflow: {{enabled: false}}}}
"""


Machines = tuple[Shell, Shell, Path]
EVERYWHERE = pytest.mark.parametrize(
    "clones",
    [
        FOLDER,
        *(
            pytest.param(kind, marks=pytest.mark.expensive)
            for kind in (POSTGRES, DATABRICKS, OBJECT)
        ),
    ],
    indirect=True,
)


def where(place: SharedPlace) -> str:
    if place.kind in (FOLDER, DATABRICKS):
        return f"path: {place.address}"
    if place.kind == OBJECT:
        return f"url: {place.address}, endpoint: {place.endpoint}"
    return f'url: "{place.address}", schema: {place.schema}'


def object_login() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


@pytest.fixture(params=[FOLDER, pytest.param(POSTGRES, marks=pytest.mark.expensive)])
def clones(request: pytest.FixtureRequest, sgpu: Shell, tmp_path: Path) -> tuple[Shell, Shell]:
    place = new_place(request, request.param, tmp_path)
    found = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "sgpu.yml").write_text(PROJECT.format(kind=place.kind, where=where(place)))
        found.append(replace(sgpu, folder=folder, environ=sgpu.environ | login() | object_login()))
    return found[0], found[1]


@pytest.fixture
def one(clones: tuple[Shell, Shell]) -> Shell:
    return clones[0]


@pytest.fixture
def two(clones: tuple[Shell, Shell]) -> Shell:
    return clones[1]


def actions(sgpu: Shell, *options: str) -> dict[str, str]:
    answer = sgpu.done("plan", "-o", "json", *options)
    return {one["address"]: one["action"] for one in answer.json["data"]["changes"]}


@EVERYWHERE
def test_what_one_clone_has_applied_is_nothing_to_do_in_the_other(one: Shell, two: Shell) -> None:
    assert actions(two) == {"run.hello": "create"}
    assert not (two.folder / ".sgpu" / "default" / "replica.db").exists()
    one.done("apply", "-y")
    assert actions(one) == {"run.hello": "no_op"}
    assert actions(two) == {"run.hello": "no_op"}
    assert "run.hello" in two.here("state", "list").out
    assert not (one.folder / ".sgpu" / "default" / "state.db").exists()


@pytest.mark.expensive
def test_a_plan_that_finds_nothing_new_asks_a_bucket_twice(
    request: pytest.FixtureRequest, sgpu: Shell, tmp_path: Path, object_server: ObjectServer
) -> None:
    with faulty_proxy(object_server.endpoint) as proxy:
        place = replace(new_place(request, OBJECT, tmp_path), endpoint=proxy.url)
        sgpu.write("sgpu.yml", PROJECT.format(kind=OBJECT, where=where(place)))
        shell = replace(sgpu, environ=sgpu.environ | object_login())
        shell.done("apply", "-y")
        shell.done("wait", "hello")
        assert actions(shell) == {"run.hello": "no_op"}
        proxy.requests.clear()
        assert actions(shell) == {"run.hello": "no_op"}
        assert len(proxy.requests) == 2
        doctor = shell.here("doctor", "-o", "json")
        said = [item["text"] for item in doctor.json["data"]["findings"]]
        assert any("whole, serial" in item for item in said), said


@pytest.mark.expensive
def test_a_saved_plan_stays_fresh_whatever_number_of_ends_is_recorded_since(
    request: pytest.FixtureRequest, sgpu: Shell, tmp_path: Path
) -> None:
    place = new_place(request, FOLDER, tmp_path)
    sgpu.write("sgpu.yml", PROJECT.format(kind=FOLDER, where=where(place)))
    sgpu.done("apply", "-y")
    again = ("--rerun", "run.hello")
    sgpu.done("plan", *again, "--out", "old.plan")
    sgpu.done("apply", "-y", *again)
    sgpu.done("plan", *again, "--out", "new.plan")

    with closing(shared_store(place, sgpu.folder / ".sgpu/default")) as store:
        recorded = some(store.read_all())
        state, attempts = recorded
        with store.lock("status", lineage=state.lineage) as writer:
            for _ in range(310):
                writer.record_attempts(attempts[:1])

    sgpu.exits(3, "apply", "old.plan")
    sgpu.done("apply", "new.plan")


def test_the_log_says_who_changed_what(one: Shell, two: Shell) -> None:
    assert "no entries yet" in one.here("state", "log").err
    one.done("apply", "-y")
    entries = two.data("state", "log")["entries"]
    numbers = [entry["number"] for entry in entries]
    assert numbers == sorted(numbers, reverse=True)
    assert {entry["host"] for entry in entries} == {os.uname().nodename}
    changes = [change for entry in reversed(entries) for change in entry["changes"]]
    done = [change["op"] for change in changes if change["op"] not in ("lock", "unlock")]
    assert done[:3] == ["begin", "launched", "plan_applied"]
    assert {"op": "record_attempts", "subject": "hello#1 succeeded"} in changes
    (began,) = (entry["number"] for entry in entries if entry["changes"][0]["op"] == "begin")
    before = json.loads(two.here("state", "pull", "--at", str(began)).out)
    assert (before["resources"], len(before["intents"])) == ([], 1)
    assert two.data("state", "show", "hello", "--at", str(began + 1))["state"] == "queued"
    assert two.here("state", "list", "--at", str(numbers[0])).out == "run.hello\n"
    assert (
        f"no entry {numbers[0] + 1}" in two.here("state", "list", "--at", str(numbers[0] + 1)).err
    )
    text = two.here("state", "log", "--tail", "2").out
    assert len(text.splitlines()) == 3
    assert "gave the lock back" in text


@EVERYWHERE
def test_a_compacted_state_goes_on_in_both_clones(one: Shell, two: Shell) -> None:
    two.done("state", "compact", "--older-than", "0s")  # there is nothing yet
    one.done("apply", "-y")
    assert actions(two) == {"run.hello": "no_op"}
    one.done("apply", "-y", "--rerun", "run.hello")
    done = one.data("state", "compact", "--older-than", "0s")
    assert done["entries"] > 5
    assert actions(one) == actions(two) == {"run.hello": "no_op"}
    assert two.data("state", "log")["entries"][-1]["number"] == done["first"]
    gone = two.here("state", "show", "hello", "--at", str(done["first"] - 1))
    assert "were deleted by `sgpu state compact`" in gone.err
    assert "no entry is as old" in one.here("state", "compact", "--older-than", "1h").err


def test_gc_deletes_nothing_that_has_the_name_of_an_attempt_of_another_machine(
    one: Shell, two: Shell
) -> None:
    one.done("apply", "-y")
    left = two.folder / ".sgpu" / "default" / "runs" / "hello" / "1"  # of a state that was given up
    shutil.copytree(one.folder / ".sgpu" / "default" / "runs" / "hello" / "1", left)
    freed = two.here("gc", "-y", "--all", "--keep-last", "0", "-o", "json")
    assert freed.json["data"]["attempts"] == []
    assert left.is_dir()
    two.done("destroy", "-y", "hello")
    assert (left / "code").is_dir()
    assert one.data("gc", "-y", "--all", "--keep-last", "0")["attempts"] == ["hello#1"]


def test_a_state_of_this_machine_is_not_compacted(sgpu: Shell) -> None:
    sgpu.write("sgpu.yml", "project: {name: p}\nruns: {}\n")
    refused = sgpu.here("state", "compact", "--older-than", "1d", "-o", "json")
    assert refused.json["error"]["code"] == "no_shared_state"


def test_a_state_of_this_machine_has_no_log(sgpu: Shell) -> None:
    sgpu.write("sgpu.yml", "project: {name: p}\nruns: {}\n")
    for command in (("log",), ("list", "--at", "1")):
        assert sgpu.refusal("state", *command) == (1, "no_log")


def test_a_removed_run_is_forgotten_by_whoever_applies_next(one: Shell, two: Shell) -> None:
    one.done("apply", "-y")
    two.edit("sgpu.yml", "  hello:", "  other:")
    two.done("apply", "-y")
    pulled = json.loads(one.here("state", "pull").out)
    gone = {item["address"]: item["gone"] for item in pulled["resources"]}
    assert gone == {"run.hello": True, "run.other": False}


RETURNS = "entrypoint: say.py:main, args: {word: kept}"


@pytest.mark.parametrize("by", ["renamed_from", "state mv"])
def test_what_a_run_left_here_is_found_after_another_machine_has_renamed_it(
    clones: tuple[Shell, Shell], by: str
) -> None:
    one, two = clones[0], replace(clones[1], host="another")
    for clone in clones:
        clone.edit("sgpu.yml", "command: [echo, hello]", RETURNS)
        clone.write("say.py", "def main(word):\n    print(word)\n    return word\n")
    one.done("apply", "-y")

    for clone in clones:
        clone.edit("sgpu.yml", "hello: {", "hi: {renamed_from: hello, ")
    two.done(*(("state", "mv", "hello", "hi") if by == "state mv" else ("apply", "-y")))
    assert f"in {one.folder}" in two.here("logs", "hi").err
    assert one.here("logs", "hi").out == "kept\n"
    (result,) = one.data("results", "hi")["results"]
    assert result["value"] == "kept"
    assert actions(one) == actions(two) == {"run.hi": "no_op"}
    left = one.folder / ".sgpu" / "default" / "runs"
    assert [path.relative_to(left).as_posix() for path in left.glob("*/*")] == ["hi/1"]


def test_a_fresh_clone_has_the_state_without_a_copy_of_it(one: Shell, two: Shell) -> None:
    one.done("apply", "-y")
    before = one.here("state", "pull").out
    shutil.rmtree(one.folder / ".sgpu")
    assert one.here("state", "pull").out == before
    assert two.here("state", "pull").out == before


def test_a_folder_that_is_not_mounted_does_not_begin_a_new_state(
    sgpu: Shell, tmp_path: Path
) -> None:
    point = tmp_path / "mount point"
    sgpu.write("sgpu.yml", PROJECT.format(kind=FOLDER, where=f'path: "{point}"'))
    for made in (False, True):
        if made:
            point.mkdir()
        for command in (("plan",), ("apply", "-y")):
            answer = sgpu.exits(1, *command)
            assert f"mkdir -p '{point}' && touch '{point}/.sgpu-state'" in answer.err
    assert not list(point.iterdir())
    (point / ".sgpu-state").touch()
    assert actions(sgpu) == {"run.hello": "create"}


def test_what_was_read_last_can_be_read_without_the_store(
    request: pytest.FixtureRequest, sgpu: Shell, tmp_path: Path
) -> None:
    place = new_place(request, FOLDER, tmp_path)
    text = PROJECT.format(kind=FOLDER, where=where(place))
    sgpu.write("sgpu.yml", text)
    assert sgpu.refusal("plan", "--offline") == (1, "no_copy")
    sgpu.done("apply", "-y")
    last = sgpu.data("state", "log")["entries"][0]
    Path(place.address).rename(tmp_path / "away")

    sgpu.exits(1, "plan")
    for command in (
        ("plan",), ("status",), ("show", "hello"), ("state", "list"), ("state", "show", "hello"),
        ("state", "pull"),
    ):  # fmt: skip
        answer = sgpu.done(*command, "--offline")
        assert f"UTC, after entry {last['number']}" in answer.err
        assert last["at"][:10] in answer.err
    assert actions(sgpu, "--offline") == {"run.hello": "no_op"}
    past = sgpu.here("state", "list", "--at", "1", "--offline", "-o", "json")
    assert past.json["error"]["code"] == "needs_store"
    for refused in (("apply", "-y"), ("destroy", "-y", "hello"), ("plan", "--propose")):
        sgpu.exits(64, *refused, "--offline")
    assert not Path(place.address).exists()


@pytest.mark.expensive
@pytest.mark.parametrize("clones", [DATABRICKS], indirect=True)
def test_what_was_read_last_in_a_workspace_can_be_read_without_a_login(one: Shell) -> None:
    one.done("apply", "-y")
    without = {name: one.environ[name] for name in one.environ.keys() - login().keys()}
    away = replace(one, environ=without)
    assert "nothing says which Databricks workspace is meant" in away.here("plan").err
    assert actions(away, "--offline") == {"run.hello": "no_op"}
    assert "hello" in away.here("state", "list", "--offline").out


def test_a_state_of_this_machine_is_read_offline_as_always(sgpu: Shell) -> None:
    text = "project: {name: p}\nruns: {hello: {gpus: 1, type: CPU, command: [echo, hello]}}\n"
    sgpu.write("sgpu.yml", text)
    assert "the state lies on this machine" in sgpu.done("plan", "--offline").err


def remote(sgpu: Shell, url: str, name: str = "origin") -> None:
    """Let the folder of a shell be a checkout with a remote."""
    for words in (("init", "-q"), ("remote", "add", name, url)):
        subprocess.run(["git", "-C", str(sgpu.folder), *words], check=True, capture_output=True)


@EVERYWHERE
def test_a_state_of_another_repository_is_refused_until_it_is_claimed(
    one: Shell, two: Shell
) -> None:
    remote(one, "git@github.com:team/vision.git")
    remote(two, "https://ci:hunter2hunter2@github.com/other/vision.git")
    one.done("apply", "-y")
    for command in (("plan",), ("status",), ("apply", "-y"), ("state", "list")):
        assert two.refusal(*command) == (3, "other_project")
    said = two.here("plan").err
    assert "belongs to another project: github.com/team/vision" in said
    assert "This one is github.com/other/vision" in said
    assert "sgpu state claim" in said
    assert "hunter2" not in said

    remote(two, "https://github.com/Team/Vision", "upstream")  # a fork, which knows its original
    assert actions(two) == {"run.hello": "no_op"}
    claimed = two.here("state", "claim", "-o", "json")
    assert claimed.json["data"] == {"repository": "github.com/other/vision", "folder": "."}
    assert one.error("plan")["code"] == "other_project"
    one.done("state", "claim")
    assert actions(one) == {"run.hello": "no_op"}
    log = one.here("state", "log").out
    assert "said that it belongs to github.com/other/vision" in log
    assert "hunter2" not in log


def test_a_project_in_another_folder_of_the_repository_is_another_one(
    sgpu: Shell, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = new_place(request, FOLDER, tmp_path)
    text = PROJECT.format(kind=FOLDER, where=where(place))
    remote(sgpu, "https://github.com/team/vision")
    found = []
    for name in ("a", "b"):
        folder = sgpu.folder / name
        folder.mkdir()
        (folder / "sgpu.yml").write_text(text)
        found.append(replace(sgpu, folder=folder))
    a, b = found
    a.done("apply", "-y")
    assert "github.com/team/vision, folder a. This one is" in b.here("plan").err
    b.exits(3, "state", "compact", "--older-than", "0s")
    b.done("state", "claim")
    assert actions(b) == {"run.hello": "no_op"}


def test_a_checkout_without_a_remote_is_not_compared_and_claims_nothing(
    one: Shell, two: Shell, tmp_path: Path
) -> None:
    remote(one, "https://github.com/team/vision")
    remote(two, str(tmp_path / "vision.git"))
    assert one.error("state", "claim")["code"] == "not_found"
    one.done("apply", "-y")
    assert actions(two) == {"run.hello": "no_op"}
    assert two.error("state", "claim")["code"] == "no_remote"


def test_two_developers_do_not_meet(
    request: pytest.FixtureRequest, sgpu: Shell, tmp_path: Path
) -> None:
    place = new_place(request, FOLDER, tmp_path)
    text = PROJECT.format(kind=FOLDER, where=where(place))
    sgpu.write("sgpu.yml", text + "targets: {dev: {mode: development}}\n")
    ann = replace(sgpu, environ={**sgpu.environ, "LOGNAME": "ann"})
    ann.done("apply", "-y", "-t", "dev")
    shutil.rmtree(sgpu.folder / ".sgpu")  # bob has a checkout of his own
    bob = replace(sgpu, environ={**sgpu.environ, "LOGNAME": "DOMAIN\\\\bob"})
    assert actions(bob, "-t", "dev") == {"run.hello": "create"}
    assert actions(ann, "-t", "dev") == {"run.hello": "no_op"}
    assert [item.name for item in (tmp_path / "shared").glob("[!.]*")] == ["p@ann"]


def test_a_machine_with_a_state_of_its_own_brings_it_along(one: Shell, two: Shell) -> None:
    file = one.folder / "sgpu.yml"
    shared = file.read_text()
    without = "".join(line for line in shared.splitlines(True) if "state:" not in line)
    file.write_text(without)
    one.done("apply", "-y")
    before = json.loads(one.here("state", "pull").out)
    file.write_text(shared)
    refused = one.exits(1, "plan")
    own = one.folder / ".sgpu" / "default" / "state.db"
    assert f"mv {own} {own}.old" in refused.err
    migrated = one.done("state", "migrate", "-o", "json")
    assert migrated.json["data"] == {
        "resources": 1,
        "attempts": 1,
        "kept": f"{own}.migrated",
    }
    assert not own.exists()
    after = json.loads(two.here("state", "pull").out)
    (run,), (was,) = after.pop("resources"), before.pop("resources")
    site = json.loads(run["attempts"][0].pop("reference"))
    assert (site["host"], site["project"]) == (os.uname().nodename, str(one.folder))
    assert was["attempts"][0].pop("reference") is None
    assert (run, after["lineage"]) == (was, before["lineage"])
    assert actions(one) == actions(two) == {"run.hello": "no_op"}
    assert one.here("logs", "hello").out == "hello\n"
    assert "nothing to migrate" in one.here("state", "migrate").err
    file.write_text(without)
    assert "state.db.migrated" in one.here("plan").err


def test_a_state_that_was_migrated_comes_back_with_what_happened_since(
    one: Shell, two: Shell
) -> None:
    shared = migrating(one)
    one.done("apply", "-y")
    file = one.folder / "sgpu.yml"
    without = file.read_text()
    file.write_text(shared)
    one.done("state", "migrate")
    printed = one.folder.parent / "state.json"
    printed.write_text(one.here("state", "pull").out)
    one.done("apply", "-y", "--rerun", "run.hello")
    file.write_text(without)
    refused = one.exits(1, "plan")
    assert f"was migrated to `{shared_name(two)}" in refused.err
    assert "`sgpu state push state.json`" in refused.err
    older = two.here("state", "push", str(printed), "-o", "json")
    assert older.json["error"]["code"] == "state_older"
    printed.write_text(two.here("state", "pull").out)
    pushed = one.done("state", "push", str(printed), "-o", "json")
    assert pushed.json["data"] == {"resources": 1, "attempts": 2}
    assert actions(one) == {"run.hello": "no_op"}
    assert "hello#2" in one.here("show", "hello").out
    before, after = json.loads(printed.read_text()), json.loads(one.here("state", "pull").out)
    assert after["serial"] > before["serial"]
    assert after["resources"] == before["resources"]
    # And into the shared store again: it has an older version of this state.
    one.done("apply", "-y", "--rerun", "run.hello")
    printed.write_text(one.here("state", "pull").out)
    two.done("state", "push", str(printed))
    assert json.loads(two.here("state", "pull").out)["resources"][0]["attempts"][-1]["attempt"] == 3
    assert actions(two) == {"run.hello": "no_op"}
    assert "1 resources and 3 attempts" in two.here("state", "log").out


@pytest.mark.parametrize("clones", [FOLDER], indirect=True)
def test_a_printed_state_goes_into_a_store_that_lost_its_entries(one: Shell) -> None:
    one.done("apply", "-y")
    printed, older = one.folder.parent / "state.json", one.folder.parent / "older.json"
    older.write_text(one.here("state", "pull").out)
    one.done("apply", "-y", "--rerun", "run.hello")
    printed.write_text(one.here("state", "pull").out)
    shutil.rmtree(Path(shared_name(one)) / "p")
    for words in (("plan",), ("state", "push", str(older))):
        assert one.error(*words)["code"] == "state_diverged", words
    one.done("state", "push", str(printed))
    assert actions(one) == {"run.hello": "no_op"}
    assert "hello#2" in one.here("show", "hello").out


def test_a_file_that_is_no_state_of_this_project_is_not_pushed(one: Shell, two: Shell) -> None:
    one.done("apply", "-y")
    printed = json.loads(one.here("state", "pull").out)
    file = one.folder.parent / "state.json"
    for text, code in (
        (json.dumps(printed | {"lineage": "another"}), "state_taken"),
        (json.dumps(printed | {"format_version": "2.0"}), "no_state_file"),
        (json.dumps({"v": 1, "data": printed}), "no_state_file"),
        ("no JSON", "no_state_file"),
    ):
        file.write_text(text)
        assert two.error("state", "push", str(file))["code"] == code
    file.unlink()
    assert "cannot be read" in two.here("state", "push", str(file)).err
    assert actions(two) == {"run.hello": "no_op"}


def shared_name(clone: Shell) -> str:
    """How messages name the store of a clone, or begin to."""
    line = next(
        line for line in (clone.folder / "sgpu.yml").read_text().splitlines() if "state:" in line
    )
    return line.partition("path: ")[2].rstrip("}") or line.partition('url: "')[2].partition('"')[0]


def migrating(one: Shell) -> str:
    """Take the `state:` out of the file of a clone, and return the file as it was."""
    file = one.folder / "sgpu.yml"
    shared = file.read_text()
    file.write_text("".join(line for line in shared.splitlines(True) if "state:" not in line))
    return shared


def test_a_launch_that_was_not_settled_is_brought_along_as_one_of_this_machine(
    machines: Machines,
) -> None:
    one, two, launches = machines
    shared = migrating(one)
    step = "sgpu_decl.storing.sqlite.writer,SqliteWriter,launched,before,1"
    one.kill_at(step, "apply", "-y", "--detach")
    until(launches.exists)
    (one.folder / "sgpu.yml").write_text(shared)
    one.done("state", "migrate")
    assert actions(two) == {"run.hello": "adopt"}
    two.done("apply", "-y", "--detach")
    one.done("apply", "-y", "--detach")
    assert actions(one) == actions(two) == {"run.hello": "adopt"}
    assert launches.read_text() == "launched\n"


def test_an_apply_that_waits_while_the_state_is_migrated_begins_no_new_one(
    machines: Machines,
) -> None:
    one, _, launches = machines
    shared = migrating(one)
    (one.folder.parent / "go").touch()
    one.done("apply", "-y")
    without = (one.folder / "sgpu.yml").read_text()
    (one.folder / "sgpu.yml").write_text(shared)
    migration = subprocess.Popen(
        dying(
            "sgpu_decl.storing.sqlite.store,SqliteStore,move_to,before,1",
            "state", "migrate",
            by=signal.SIGSTOP,
        ),
        cwd=one.folder,
        env=one.environ,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    until(lambda: os.waitid(os.P_PID, migration.pid, os.WSTOPPED | os.WNOHANG) is not None)
    (one.folder / "sgpu.yml").write_text(without.replace("echo launched", "echo again"))
    waiting = subprocess.Popen(
        [sys.executable, "-m", "sgpu_decl", "apply", "-y"],
        cwd=one.folder,
        env=one.environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    with migration, waiting:
        assert waiting.stderr is not None
        said = ""
        while "state migrate" not in said:  # it waits for the lock
            said = waiting.stderr.readline()
            assert said
        migration.send_signal(signal.SIGCONT)
        assert migration.wait() == 0
        said = waiting.stderr.read()
        assert waiting.wait() == 1
    assert "state_migrated" in said or "was migrated to a shared one" in said
    assert not (one.folder / ".sgpu" / "default" / "state.db").exists()
    assert launches.read_text() == "launched\n"


APPEND = {
    FOLDER: "sgpu_decl.storing.journal.file_journal,FileJournal,append",
    POSTGRES: "sgpu_decl.storing.postgres.journal,PostgresJournal,append",
    OBJECT: "sgpu_decl.storing.journal.file_journal,FileJournal,append",
}
ENTRIES = range(1, 7)  # lock, begin, launched, plan applied, unlock, and the lock after the run


@pytest.mark.parametrize(
    "moment",
    sampled(
        [
            (kind, when, nth)
            for nth in ENTRIES
            for when in ("before", "after")
            for kind in (OBJECT, FOLDER, POSTGRES)
        ],
        quick=2,
    ),
)
def test_an_apply_that_is_killed_at_any_entry_and_done_again_has_launched_once(
    request: pytest.FixtureRequest,
    sgpu: Shell,
    tmp_path: Path,
    moment: tuple[str, str, int],
) -> None:
    kind, when, nth = moment
    place = new_place(request, kind, tmp_path)
    sgpu = replace(sgpu, environ=sgpu.environ | object_login())
    sgpu.write(
        "sgpu.yml",
        PROJECT.format(kind=kind, where=where(place)).replace(
            "[echo, hello]", "[sh, -c, 'echo launched >> \"$SGPU_PROJECT_DIR/launches.log\"']"
        ),
    )
    sgpu.kill_at(f"{APPEND[kind]},{when},{nth}", "apply", "-y")
    sgpu.done("apply", "-y")
    sgpu.done("wait", "hello")
    assert (sgpu.folder / "launches.log").read_text() == "launched\n"
    assert actions(sgpu) == {"run.hello": "no_op"}


WAITS = (
    "[sh, -c, 'echo launched >> {folder}/launches.log; "
    "until [ -e {folder}/go ]; do sleep 0.05; done']"
)


@pytest.fixture
def machines(request: pytest.FixtureRequest, sgpu: Shell, tmp_path: Path) -> Iterator[Machines]:
    """Two clones on two machines, as far as they know, and a file of all launches of their one run.
    It runs until the test is over."""
    place = new_place(request, FOLDER, tmp_path)
    text = PROJECT.format(kind=FOLDER, where=where(place))
    found = []
    for name, host in ("one", None), ("two", "another"):
        folder = tmp_path / name
        folder.mkdir()
        command = WAITS.format(folder=tmp_path)
        (folder / "sgpu.yml").write_text(text.replace("[echo, hello]", command))
        found.append(replace(sgpu, folder=folder, host=host))
    one, two = found
    try:
        yield one, two, tmp_path / "launches.log"
    finally:
        (tmp_path / "go").touch()
        for clone in found:
            clone.here("wait", "*")


def test_a_run_of_another_machine_is_shown_as_recorded_and_not_launched_again(
    machines: Machines,
) -> None:
    one, two, launches = machines
    one.done("apply", "-y", "--detach")
    until(launches.exists)
    assert actions(two) == {"run.hello": "adopt"}
    applied = two.exits(1, "apply", "-y")
    assert f"it was launched on {os.uname().nodename}, in {one.folder}" in applied.err
    (status,) = two.data("status")["runs"]
    assert status["state"] == "queued"
    assert str(one.folder) in status["unavailable"]
    assert status["unknown_since"] <= datetime.now(UTC).isoformat()
    assert "as last recorded" in two.here("status").out
    for command in ("logs", "results", "fetch", "cancel", "wait", "stacks"):
        refused = two.here(command, "hello")
        assert refused.code == 1, command
        assert f"in {one.folder}" in refused.err
    (launches.parent / "go").touch()
    one.done("wait", "hello")
    one.done("apply", "-y")  # records the end
    assert actions(two) == {"run.hello": "no_op"}
    assert launches.read_text() == "launched\n"


def test_a_run_of_another_machine_is_launched_beside_it_on_request(machines: Machines) -> None:
    one, two, launches = machines
    one.done("apply", "-y", "--detach")
    again = ("apply", "-y", "--detach", "--rerun", "run.hello", "--on-active")
    assert f"in {one.folder}" in two.exits(1, *again, "queue").err
    two.done(*again, "parallel")
    until(lambda: launches.exists() and launches.read_text() == "launched\n" * 2)
    assert actions(one) == {"run.hello": "adopt"}


def test_a_run_of_another_machine_that_may_wait_for_ever_is_active_whatever_its_timeouts(
    machines: Machines,
) -> None:
    one, two, launches = machines
    limits = ("--set", "runs.hello.timeout=1h", "--set", "runs.hello.startup_timeout=5m")
    one.done("apply", "-y", "--detach", *limits)
    until(launches.exists)
    with one.edited_state() as pulled:
        pulled["resources"][0]["attempts"][0]["created_at"] = "2026-01-01T00:00:00Z"
    (status,) = two.data("status")["runs"]
    assert status["state"] == "queued"
    two.edit("sgpu.yml", "echo launched", "echo changed")
    assert "active_run" in two.exits(1, "apply", "-y", "-o", "json", *limits).out
    assert launches.read_text() == "launched\n"


def test_a_copy_of_a_checkout_is_another_one(machines: Machines) -> None:
    one, two, launches = machines
    one.done("apply", "-y", "--detach")
    until(launches.exists)
    shutil.copytree(one.folder / ".sgpu", two.folder / ".sgpu")
    assert actions(two) == {"run.hello": "adopt"}
    two.done("apply", "-y", "--detach")
    (status,) = two.data("status")["runs"]
    assert str(one.folder) in status["unavailable"]
    (status,) = one.data("status")["runs"]
    assert status["state"] == "running"
    assert launches.read_text() == "launched\n"


def test_a_checkout_that_got_another_name_is_the_same(machines: Machines) -> None:
    one, _, launches = machines
    one.done("apply", "-y", "--detach")
    until(launches.exists)
    renamed = replace(one, folder=one.folder.rename(one.folder.with_name("renamed")))
    (status,) = renamed.data("status")["runs"]
    assert status["state"] == "running"
    renamed.folder.rename(one.folder)


def test_a_run_that_ended_before_its_machine_got_another_name_is_known(machines: Machines) -> None:
    one, _, launches = machines
    replace(one, host="before").done("apply", "-y", "--detach")
    (status,) = one.data("status")["runs"]
    assert "before" in status["unavailable"]
    (launches.parent / "go").touch()
    until(lambda: list(one.folder.glob(".sgpu/default/runs/hello/1/outcome.json")))
    (status,) = one.data("status")["runs"]
    assert status["state"] == "succeeded"


def killed_after_begin(machine: Shell) -> None:
    """Have an apply killed that has begun a launch, and has not launched it."""
    machine.kill_at(f"{APPEND[FOLDER]},after,2", "apply", "-y", "--detach")


def test_a_launch_that_another_machine_began_is_left_to_it(machines: Machines) -> None:
    one, two, launches = machines
    killed_after_begin(one)
    assert actions(two) == {"run.hello": "adopt"}
    applied = two.exits(1, "apply", "-y")
    assert "it is not known whether that runs: it was launched on" in applied.err
    assert "it was launched on" in two.here("status").out
    one.done("apply", "-y", "--detach")
    until(launches.exists)
    assert launches.read_text() == "launched\n"


def test_a_launch_that_a_machine_began_which_is_gone_for_good_is_let_go_of(
    machines: Machines,
) -> None:
    one, two, launches = machines
    killed_after_begin(one)
    two.done("state", "rm", "run.hello")
    assert actions(two) == {"run.hello": "create"}
    two.done("apply", "-y", "--detach")
    until(launches.exists)
    assert actions(one) == {"run.hello": "adopt"}
    assert launches.read_text() == "launched\n"


def test_a_launch_that_cannot_be_settled_is_named_and_can_be_let_go_of(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _, launches = machines
    step = "sgpu_decl.backends.local.local_launcher,LocalLauncher,launch,before,1"
    one.kill_at(step, "apply", "-y", "--detach")

    def unknown(_: LocalLauncher, request: LaunchRequest) -> str | None:
        raise OutcomeUnknown(f"`{request.ref}` may have been started: you may not use the pool")

    with monkeypatch.context() as patched:
        patched.setattr(LocalLauncher, "launch", unknown)
        answer = one.here("apply", "-y", "--detach")
    assert "an earlier apply began to launch `hello#1`" in answer.err
    assert "you may not use the pool" in answer.err
    assert "`sgpu state rm run.hello` removes it from the state" in answer.err
    assert actions(one) == {"run.hello": "adopt"}
    one.done("state", "rm", "run.hello")
    assert actions(one) == {"run.hello": "create"}
    one.done("apply", "-y", "--detach")
    until(launches.exists)
    assert launches.read_text() == "launched\n"


def test_a_run_of_a_machine_that_is_gone_for_good_is_let_go_of(machines: Machines) -> None:
    one, two, _ = machines
    one.done("apply", "-y", "--detach")
    one.exits(1, "state", "rm", "run.hello")
    two.done("state", "rm", "run.hello")
    assert actions(two) == {"run.hello": "create"}


@dataclass(frozen=True)
class LockBreaker:
    """Another machine, which breaks the lock of the clone `one` when it is called."""

    one: Shell

    def __call__(self) -> None:
        shared = self.one.folder.parent / "shared"
        place = SharedPlace(kind=FOLDER, address=str(shared), project="p")
        break_lock(place, self.one.folder.parent / "three")


def test_a_holder_whose_lock_was_broken_while_it_staged_launches_nothing(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, launches = machines
    real, broken = LocalLauncher.stage, LockBreaker(one)

    def stage(self: LocalLauncher, request: LaunchRequest) -> None:
        real(self, request)
        broken()

    with monkeypatch.context() as patched:
        patched.setattr(LocalLauncher, "stage", stage)
        answer = one.here("apply", "-y", "-o", "json")
    assert (answer.code, answer.json["error"]["code"]) == (3, "lock_lost")
    assert not launches.exists()
    one.done("apply", "-y", "--detach")  # the intent was kept
    until(launches.exists)
    assert actions(two) == {"run.hello": "adopt"}
    assert launches.read_text() == "launched\n"


def test_what_was_launched_before_the_lock_was_found_broken_is_named_and_nothing_is_cancelled(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _, launches = machines
    one.done("apply", "-y", "--detach")
    until(launches.exists)
    real, broken = LocalLauncher.launch, LockBreaker(one)

    def launch(self: LocalLauncher, request: LaunchRequest) -> str | None:
        reference = real(self, request)
        broken()
        return reference

    replacing = ("--rerun", "run.hello", "--on-active", "replace")
    one.done("plan", *replacing, "--out", "saved.plan")
    with monkeypatch.context() as patched:
        patched.setattr(LocalLauncher, "launch", launch)
        answer = one.here("apply", "saved.plan", "-o", "json")
    assert (answer.code, answer.json["error"]["code"]) == (3, "lock_lost"), answer.err
    assert "`hello#2` was launched" in answer.json["error"]["message"]
    assert one.data("show", "hello#1")["state"] == "running"


def test_a_launch_that_failed_and_cannot_be_recorded_leaves_the_others_alone(
    one: Shell, two: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = one.folder / "sgpu.yml"
    hello = next(line for line in file.read_text().splitlines() if "hello:" in line)
    file.write_text(file.read_text() + hello.replace("hello", "later") + "\n")
    (two.folder / "sgpu.yml").write_text(file.read_text())
    launch = LocalLauncher.launch

    def failing(self: LocalLauncher, request: LaunchRequest) -> str | None:
        if request.ref.address.name == "hello":
            raise BackendError("no process can be started")
        return launch(self, request)

    def refused(self: JournalWriter, ends: Sequence[IntentEnd]) -> None:
        raise SgpuError("no space is left", code="state_unreachable")

    with monkeypatch.context() as patched:
        patched.setattr(LocalLauncher, "launch", failing)
        patched.setattr(JournalWriter, "end", refused)
        answer = one.here("apply", "-y")
    assert answer.code == 1
    assert "no process can be started" in answer.err
    assert "no space is left" in answer.err
    assert actions(two)["run.later"] in ("adopt", "no_op")  # it may run still


def test_a_wrong_block_is_an_error_with_its_place(sgpu: Shell) -> None:
    sgpu.write(
        "sgpu.yml",
        "project: {name: p}\nstate:\n  kind: postgres\n"
        "  url: postgresql://me:hunter2hunter2@db.example.com/sgpu\n",
    )
    for command in ("validate", "plan", "status"):
        answer = sgpu.exits(1, command)
        assert "sgpu.yml:4:8" in answer.err
        assert "PGPASSWORD" in answer.err
        assert "literal_token" not in answer.err
        assert "hunter2" not in answer.err + answer.out


def test_a_store_that_another_file_names_is_refused_with_its_place(
    sgpu: Shell, tmp_path: Path
) -> None:
    text = PROJECT.format(kind=FOLDER, where=f"path: {tmp_path / 'shared'}")
    sgpu.write("other.yml", text)
    for command in (("validate",), ("plan",), ("apply", "-y")):
        answer = sgpu.exits(1, *command, "other.yml", "-o", "json")
        (finding,) = answer.json["error"]["diagnostics"]
        assert (finding["code"], finding["file"], finding["line"]) == (
            "misplaced_state", "other.yml", 2,
        )  # fmt: skip
        assert "move `state` to `sgpu.yml`" in finding["hint"]
    sgpu.write("sgpu.yml", text.replace("hello", "own"))
    assert "misplaced_state" in sgpu.here("plan", "other.yml", "-o", "json").out
    in_target = text.replace("state: ", "targets: {prod: {state: ").replace("}\nruns", "}}}\nruns")
    sgpu.write("other.yml", in_target)
    sgpu.done("validate", "other.yml", "-t", "default")
    assert "other.yml:2:" in sgpu.here("plan", "other.yml", "-t", "prod").err
    assert not (tmp_path / "shared").exists()
