"""What `sgpu gc` deletes, keeps, shows and asks."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import pytest

import sgpu_decl
from sgpu_decl.api import Location, Session
from sgpu_decl.scratch_folders import Kind, scratch_folder
from tests.cli.conftest import AtTerminal, Shell
from tests.mounts import bound, fill, mount, small_disk

PROJECT = """\
project: {name: keeps}
runs:
  train:
    gpus: 1
    type: CPU
    resume: auto
    mlflow: {enabled: false}
    command: 'if [ "$KIND" != nothing ]; then echo 1 > "$SGPU_OUTPUT_DIR/w"; fi; [ "$KIND" = good ]'
    env: {variables: {KIND: "VALUE", N: "NUMBER"}}
  evaluate:
    gpus: 1
    type: CPU
    after: [train]
    command: [cat, "${run.train.output}/w"]
    mlflow: {enabled: false}
"""


@pytest.fixture
def project(sgpu: Shell) -> Shell:
    """`train#1` succeeded and `evaluate#1` read it; `train#2` left a checkpoint and failed, and all
    after it failed before they wrote one."""
    for number, kind in enumerate(("good", "broken", *("nothing",) * 4), 1):
        write(sgpu, kind, number)
        select = () if kind == "good" else ("--select", "train")
        assert sgpu.here("apply", "-y", *select).code == (0 if kind == "good" else 5)
    return sgpu


def write(sgpu: Shell, kind: str, number: int) -> None:
    sgpu.write("sgpu.yml", PROJECT.replace("VALUE", kind).replace("NUMBER", str(number)))


def folders(sgpu: Shell, run: str = "train") -> list[str]:
    return sorted(path.name for path in (sgpu.folder / ".sgpu/default/runs" / run).iterdir())


def found(sgpu: Shell) -> list[Any]:
    """What the next launches find: of earlier attempts, and of each other."""
    planned = sgpu.here("plan", "--rerun", "run.evaluate", "--rerun", "run.train", "-o", "json")
    data = planned.json["data"]
    pins = [one["fields"] for one in data["changes"] if one["address"] == "run.evaluate"]
    return [[one["summary"] for one in data["checks"] if one["id"] == "resumes"], pins]


def options() -> Iterator[tuple[str, ...]]:
    yield ()
    yield ("--keep-last", "0")
    yield ("--older-than", "0s")
    yield ("--keep-last", "1", "--older-than", "0s")


def test_no_gc_takes_what_later_launches_find(project: Shell) -> None:
    write(project, "good", 9)
    before = found(project)
    assert before[0] == ["it finds the output of `train#2` in SGPU_PREVIOUS_OUTPUT_DIR"]
    shown = project.data("gc", "--keep-last", "0", "--dry-run")
    assert shown["attempts"] == ["train#3", "train#4", "train#5", "train#6"]
    assert shown["kept"] == [
        {"attempt": "evaluate#1", "reason": "success"},
        {"attempt": "train#1", "reason": "read"},
        {"attempt": "train#2", "reason": "output"},
    ]
    assert shown["bytes"] == sum(one["bytes"] for one in shown["freed"]) > 0
    for words in options():
        project.done("gc", "-y", *words)
        assert found(project) == before
        assert {"1", "2"} <= set(folders(project))
        assert folders(project, "evaluate") == ["1"]
    assert folders(project) == ["1", "2"]
    project.done("gc", "-y", "--all", "--keep-last", "0")
    assert (folders(project), folders(project, "evaluate")) == ([], [])


def test_gc_lists_what_goes_with_sizes_and_deletes_it_once_somebody_said_yes(
    project: Shell, at_terminal: AtTerminal
) -> None:
    refused = project.exits(1, "gc")
    assert "train#3  " in refused.out
    assert "kept: train#2: `resume` finds its output" in refused.out
    assert "cannot ask for approval: stdin or stderr is not a terminal" in refused.err
    assert "give `-y`" in refused.err
    assert project.error("gc")["code"] == "not_approved"
    everything = folders(project)

    with at_terminal("gc") as terminal:
        terminal.until("train#3")
        terminal.until("Type `yes` to approve")
        terminal.type("no\n")
        assert terminal.ended() == 1
    assert folders(project) == everything
    with at_terminal("gc") as terminal:
        terminal.until("Type `yes` to approve")
        terminal.type("yes\n")
        terminal.until("freed: 1 attempt, ")
        assert terminal.ended() == 0
    assert folders(project) == [name for name in everything if name != "3"]
    assert project.here("gc").out.endswith("nothing to free\n")  # and there is nothing to ask


@pytest.mark.expensive
def test_gc_makes_room_on_a_disk_that_is_full(sgpu: Shell, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, 24 << 20):
        shell = replace(sgpu, folder=disk)
        text = "name: hello\ngpus: 1\ntype: CPU\nuntil: always\nmlflow: {enabled: false}\n"
        shell.write("run.yaml", f"{text}command: 'echo 1 > $SGPU_OUTPUT_DIR/x; exit 1'\n")
        for _ in range(4):
            shell.exits(5, "apply", "-y")
        fill(disk / "filler")
        freed = shell.here("gc", "-y", "-o", "json")
        assert freed.json["data"]["attempts"] == ["hello#1"], freed.err
        shell.done("status")


def test_what_came_after_the_list_was_shown_does_not_go(project: Shell) -> None:
    """The API deletes at most what its caller names, and of that only what may go."""
    with Session.open(Location(project=project.folder)) as session:
        freed = session.gc(keep_last=0, only=["train#4", "train#2"], dry_run=False)
    assert freed["attempts"] == ["train#4"]
    assert folders(project) == ["1", "2", "3", "5", "6"]


HELLO = "name: hello\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\ncommand: 'true'\n"
DRAFT = ".new-0123456789ab"


def test_gc_deletes_what_killed_processes_left_half_written(sgpu: Shell) -> None:
    sgpu.write("run.yaml", HELLO)
    sgpu.done("apply", "-y")
    state, store, caches = (
        sgpu.folder / ".sgpu/default",
        Path(sgpu.environ["XDG_DATA_HOME"]) / "sgpu/store",
        Path(sgpu.environ["XDG_CACHE_HOME"]) / "sgpu",
    )
    left = [
        state / "runs/hello/2.staging-00c0ffee/code/deep/train.py",
        state / "runs/hello/3.discarded/spec.json",
        *(folder / DRAFT for folder in (state.parent, state, state / "unpushed", caches)),
        *(caches / name / DRAFT for name in ("environments", "files")),
        *(store / name / DRAFT for name in ("manifests", "roots")),
        store / ".put-0123456789ab",
        *(store / "environments" / name / DRAFT for name in ("manifests", "roots", "resolutions")),
        store / "environments/incoming/0123456789ab",
        store / "environments/building/0123456789ab/x",
        store / "environments/building/0123456789ab.lock",
    ]
    # What another process writes at this moment stays.
    young = [
        state / "runs/hello/4.staging-00c0ffee/code/train.py",
        store / "roots/.new-ba9876543210",
    ]
    (store / "environments/objects").mkdir(parents=True)
    for path in (*left, *young):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(100))
    for path in left:
        for old in (path, *path.parents[:3]):
            if old.is_relative_to(state / "runs/hello") and old != state / "runs/hello":
                os.utime(old, (0, 0))
        os.utime(path, (0, 0))

    sgpu.done("gc", "-y")

    assert [path for path in left if path.exists()] == []
    assert list((state / "runs/hello").glob("[23].*")) == []
    assert [path for path in young if not path.exists()] == []


def test_gc_goes_on_beside_a_damaged_list_of_code_and_names_it(sgpu: Shell) -> None:
    sgpu.write("run.yaml", HELLO)
    sgpu.write("train.py", "")
    for _ in range(2):
        sgpu.done("apply", "-y", "--rerun", "run.hello")
    store = Path(sgpu.environ["XDG_DATA_HOME"]) / "sgpu/store"
    (manifest,) = (store / "manifests").iterdir()
    manifest.write_bytes(b"")  # as after a power cut
    freed = sgpu.data("gc", "--keep-last", "1", "-y")
    assert freed["attempts"] == ["hello#1"]
    assert [problem["summary"] for problem in freed["problems"]] == [
        f"`{manifest}` is damaged, so it is not known what it needs"
    ]


def test_gc_goes_on_after_a_folder_that_cannot_be_deleted_and_says_it(sgpu: Shell) -> None:
    sgpu.write("run.yaml", HELLO)
    for _ in range(2):
        sgpu.done("apply", "-y", "--rerun", "run.hello")
    runs = sgpu.folder / ".sgpu/default/runs/hello"
    (runs / "1.discarded").write_text("a file where a folder has to be made")

    freed = sgpu.done("gc", "-y", "--all", "--keep-last", "0")
    assert "kept: hello#1: its place cannot be asked now" in freed.out
    assert "freed: 1 attempt, " in freed.out
    assert f"not freed: `{runs}/1` cannot be deleted: " in freed.err
    assert not (runs / "2").exists()


def test_gc_deletes_temporary_folders_that_no_command_uses(sgpu: Shell, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    sgpu.write("run.yaml", HELLO)
    sgpu.done("apply", "-y")
    with patch.object(tempfile, "tempdir", os.fspath(temporary)), ExitStack() as used:
        held = [used.enter_context(scratch_folder(kind)) for kind in get_args(Kind)]
        left = [temporary / f"sgpu-{kind}-0a1b2c3d" for kind in get_args(Kind)]
        others = [temporary / name for name in ("sgpu-mine", "sgpu-code", "sgpu-inputs-0a1b2c3d")]
        young = temporary / "sgpu-upload-aaaaaaaa"
        for folder in (*left, *others, young):
            (folder / "deep").mkdir(parents=True)
            (folder / "deep/code.tar.gz").write_bytes(bytes(100))
        for folder in (*left, *others, *held):
            os.utime(folder, (0, 0))
        (temporary / "sgpu-launch-aaaaaaaa").symlink_to(others[0])

        sgpu.done("gc", "--dry-run")
        assert all(folder.exists() for folder in left)
        sgpu.done("gc", "-y")

        assert [folder for folder in left if folder.exists()] == []
        assert all((folder / "deep/code.tar.gz").exists() for folder in (*others, young))
        assert all(folder.exists() for folder in held)


def test_commands_make_temporary_folders_where_gc_finds_them() -> None:
    """Those of nodes and of tests of users have their own sweepers."""
    makers = re.compile(r"\b(mkdtemp|TemporaryDirectory|NamedTemporaryFile)\(")
    package = Path(sgpu_decl.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if makers.search(path.read_text())
    }
    assert found == {
        "agent/probe/libraries.py",
        "backends/ray/cluster/content_check.py",
        "backends/ray/cluster/node_actor.py",
        "backends/ray/cluster/node_folder.py",
        "scratch_folders.py",
        "backends/slurm/job/bootstrap.py",
        "testing/ray_cluster.py",
        "testing/slurm_cluster.py",
    }


STORES = ("store", "store/environments")


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("damage", ["read-only", "no lock"])
def test_gc_goes_on_where_a_store_cannot_be_written_or_read_and_says_it(
    sgpu: Shell, store: str, damage: str
) -> None:
    sgpu.write("run.yaml", HELLO)
    for _ in range(2):
        sgpu.done("apply", "-y", "--rerun", "run.hello")
    folder = Path(sgpu.environ["XDG_DATA_HOME"]) / "sgpu" / store
    (folder / "objects").mkdir(parents=True, exist_ok=True)
    (folder / "roots").mkdir(exist_ok=True)
    with ExitStack() as undone:
        if damage == "read-only":
            undone.enter_context(bound(folder))
            mount("-o", "remount,bind,ro", os.fspath(folder))
        else:
            (folder / "lock").unlink(missing_ok=True)
            (folder / "lock").mkdir()

        freed = sgpu.here("gc", "-y", "--all", "--keep-last", "0", "-o", "json")

    assert freed.code == 0, freed.err
    answer = freed.json["data"]
    assert answer["attempts"] == ["hello#1", "hello#2"]
    said = [one["summary"] for one in answer["problems"] if one["hint"]]
    assert any(os.fspath(folder) in summary for summary in said), answer
