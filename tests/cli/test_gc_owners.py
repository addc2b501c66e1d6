"""`sgpu gc` in one project, and what another project needs that is not where it was."""

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

RUN = "name: train\ngpus: 1\ntype: CPU\ncommand: ['true']\nmlflow: {enabled: false}\n"
DAY = 86400.0


@pytest.fixture
def other(sgpu: Shell) -> Shell:
    """A second project of the same user, from which gc runs."""
    return _project(sgpu, "other")


@pytest.fixture
def applied(sgpu: Shell) -> Shell:
    """A project that needs its code in the store."""
    return _project(sgpu, "project")


def _project(sgpu: Shell, name: str) -> Shell:
    folder = sgpu.folder.parent / name
    folder.mkdir(exist_ok=True)
    shell = replace(sgpu, folder=folder)
    shell.write("run.yaml", RUN)
    shell.write("code.py", f"NAME = {name!r}\n")
    shell.done("apply", "-y")
    return shell


def _store(sgpu: Shell) -> Path:
    return Path(sgpu.environ["XDG_DATA_HOME"]) / "sgpu/store"


def _later(sgpu: Shell, days: float = 31) -> None:
    """All that the store holds was put, and all owners were seen, some days ago."""
    then = time.time() - days * DAY
    for path in _store(sgpu).rglob("*"):
        os.utime(path, (then, then))


def _needed(sgpu: Shell, project: str = "project") -> bool:
    """Whether the content of a project's code is in the store."""
    content = hashlib.sha256(f"NAME = {project!r}\n".encode()).hexdigest()
    return (_store(sgpu) / "objects" / content[:2] / content[2:]).exists()


def _record(sgpu: Shell, folder: Path) -> Path:
    """The record of what a project needs."""
    for path in (_store(sgpu) / "roots").iterdir():
        if str(folder) in json.loads(path.read_text())["owner"]:
            return path
    raise AssertionError(folder)


def _of_an_older_sgpu(sgpu: Shell, folder: Path) -> None:
    """Make the record of a project what an older sgpu writes: a path and digests, under the hash of
    the path."""
    path = _record(sgpu, folder)
    old = {key: json.loads(path.read_text())[key] for key in ("owner", "digests")}
    path.unlink()
    name = hashlib.sha256(old["owner"].encode()).hexdigest()
    (path.parent / f"{name}.json").write_text(json.dumps(old))


def test_a_project_that_is_there_keeps_its_code_for_ever(applied: Shell, other: Shell) -> None:
    for _ in range(2):
        _later(applied, days=400)
        freed = other.data("gc", "-y")
    assert freed["not_found"] == []
    assert _needed(applied)


def test_a_deleted_project_keeps_its_code_for_30_days(applied: Shell, other: Shell) -> None:
    record = _record(applied, applied.folder)
    shutil.rmtree(applied.folder)
    _later(applied, days=29)
    said = other.here("gc", "-y")
    assert f"not found: `{applied.folder}/.sgpu/default/state.db`; its code" in said.err
    assert f"if you deleted it: `rm {record}`, then `sgpu gc`" in said.err
    assert said.err.count("\n") == 1
    assert _needed(applied)
    _later(applied, days=31)
    shown = other.data("gc", "--dry-run")["code_bytes"]
    assert _needed(applied)
    assert other.data("gc", "-y")["code_bytes"] == shown > 0
    assert not _needed(applied)


def test_gc_says_one_line_of_all_other_projects(applied: Shell, other: Shell) -> None:
    third = _project(other, "third")
    for gone in (applied, third):
        shutil.rmtree(gone.folder)
    (line,) = other.here("gc", "-y").err.splitlines()
    assert line.startswith("not found: 2 projects and saved plans; their code and environments")
    assert "`sgpu gc --dry-run -o json` lists them" in line


def test_what_gc_says_of_a_deleted_project_frees_its_code_at_once(
    applied: Shell, other: Shell
) -> None:
    shutil.rmtree(applied.folder)
    _later(applied, days=1)
    (found,) = other.data("gc", "-y")["not_found"]
    Path(found["record"]).unlink()
    assert found["kept_until"].endswith("Z")
    other.done("gc", "-y")
    assert not _needed(applied)


def test_a_moved_project_keeps_its_code_once_it_referred_again(
    applied: Shell, other: Shell
) -> None:
    moved = replace(applied, folder=applied.folder.rename(applied.folder.with_name("moved")))
    moved.done("gc", "-y")
    _later(applied)
    other.done("gc", "-y")
    assert _needed(applied)


def test_a_new_project_in_the_place_of_a_moved_one_takes_nothing_from_it(
    applied: Shell, other: Shell
) -> None:
    applied.folder.rename(applied.folder.with_name("moved"))
    applied.folder.mkdir()
    applied.write("run.yaml", RUN)
    applied.write("code.py", "NAME = 'new'\n")
    applied.done("apply", "-y")
    _later(applied, days=29)
    other.done("gc", "-y")
    assert _needed(applied)


def test_a_copied_project_takes_nothing_from_its_original(applied: Shell, other: Shell) -> None:
    copied = replace(applied, folder=applied.folder.with_name("copied"))
    shutil.copytree(applied.folder, copied.folder)
    copied.write("code.py", "NAME = 'copied'\n")
    copied.done("apply", "-y")
    _later(applied)
    other.done("gc", "-y")
    assert _needed(applied, "project")
    assert _needed(applied, "copied")


def test_a_project_whose_disk_is_not_mounted_keeps_its_code(sgpu: Shell, other: Shell) -> None:
    """With a real mount, in a namespace of its own."""
    disk = sgpu.folder.parent / "disk"
    disk.mkdir()
    sgpu.write("run.yaml", RUN)
    sgpu.write("code.py", "NAME = 'project'\n")
    here = f"{shlex.quote(sys.executable)} -m sgpu_decl"
    script = (
        f"mount -t tmpfs none {disk} || exit 9\ncp -r {sgpu.folder} {disk}/project && "
        f"(cd {disk}/project && {here} apply -y) || exit 1\n"
        f"until umount {disk}; do sleep 0.1; done"  # the agent of the attempt is about to end
    )
    # Its root has a folder of locks in `/tmp`, which may be that of the real root.
    locks = sgpu.folder.parent / "locks"
    locks.mkdir(mode=0o700)
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace may be made here")
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script], capture_output=True, check=False,
        env={**sgpu.environ, "XDG_RUNTIME_DIR": str(locks)},
    )  # fmt: skip
    if done.returncode == 9:
        pytest.skip("no mount may be made here")
    assert done.returncode == 0, done.stderr
    _later(sgpu, days=400)
    (found,) = other.data("gc", "-y")["not_found"]
    assert found["path"] == f"{disk}/project/.sgpu/default/state.db"
    assert found["kept_until"] is None
    assert _needed(sgpu)


def test_a_project_that_may_not_be_looked_into_keeps_its_code(applied: Shell, other: Shell) -> None:
    state = applied.folder / ".sgpu/default/state.db"
    state.write_bytes(b"no database, and long enough to look like one" * 100)
    _later(applied, days=400)
    other.done("gc", "-y")
    assert _needed(applied)


def test_a_state_of_a_newer_sgpu_or_in_a_store_of_another_kind_keeps_its_code(
    applied: Shell, other: Shell
) -> None:
    record = _record(applied, applied.folder)
    there = json.loads(record.read_text()) | {
        "owner": str(record),
        "store": "postgresql://db.example/sgpu",
        "later": {"unknown": True},
    }
    record.write_text(json.dumps({key: item for key, item in there.items() if key != "folders"}))
    shutil.rmtree(applied.folder)
    _later(applied, days=400)
    (found,) = other.data("gc", "-y")["not_found"]
    assert found["path"] == "postgresql://db.example/sgpu"
    assert _needed(applied)


def test_a_project_of_an_older_sgpu_keeps_its_code_wherever_it_is(
    applied: Shell, other: Shell
) -> None:
    _of_an_older_sgpu(applied, applied.folder)
    _later(applied, days=400)
    other.done("gc", "-y")
    assert _needed(applied)
    applied.folder.rename(applied.folder.with_name("moved"))
    _later(applied, days=400)
    assert "not found: `" in other.here("gc", "-y").err
    assert _needed(applied)


def test_what_an_older_sgpu_recorded_goes_once_a_newer_one_recorded_it(
    applied: Shell, other: Shell
) -> None:
    _of_an_older_sgpu(applied, applied.folder)
    applied.write("code.py", "NAME = 'changed'\n")
    applied.done("apply", "-y")
    _later(applied)
    other.done("gc", "-y")
    assert not _needed(applied, "project")
    assert _needed(applied, "changed")


def test_an_older_sgpu_finds_the_owner_of_a_newer_record(applied: Shell) -> None:
    """It forgets every record whose `owner` is no path that exists."""
    record = json.loads(_record(applied, applied.folder).read_text())
    assert Path(record["owner"]).is_file()
    assert len(record["digests"]) == 1


def test_a_damaged_record_deletes_nothing(applied: Shell, other: Shell) -> None:
    record = _record(applied, applied.folder)
    record.write_text("{")
    _later(applied)
    refused = other.exits(1, "gc", "-y", "-o", "json")
    assert refused.json["error"]["code"] == "store_record_damaged"
    assert str(record) in refused.json["error"]["message"]
    assert _needed(applied)


def test_gc_of_every_attempt_keeps_what_the_next_plan_compares_with(applied: Shell) -> None:
    _later(applied)
    applied.done("gc", "-y", "--all", "--keep-last", "0")
    applied.write("code.py", "NAME = 'changed'\n")
    (change,) = applied.data("plan")["changes"]
    assert change["code"]["changed"] == ["code.py"]


def test_a_launch_that_a_crash_interrupted_keeps_its_code(sgpu: Shell, other: Shell) -> None:
    """The state has its intent alone: the next apply settles it."""
    sgpu.write("run.yaml", RUN)
    sgpu.write("code.py", "NAME = 'project'\n")
    dying = (
        "import os\nfrom sgpu_decl.storing.sqlite import writer\n"
        "from sgpu_decl.cli.main import main\n"
        "begin = writer.SqliteWriter.begin\n"
        "def dying(self, intent):\n    begin(self, intent)\n    os._exit(9)\n"
        "writer.SqliteWriter.begin = dying\nmain(['apply', '-y'])\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", dying], cwd=sgpu.folder, env=sgpu.environ, check=False
    )
    assert killed.returncode == 9
    sgpu.done("gc", "-y")
    _later(sgpu)
    other.done("gc", "-y")
    assert _needed(sgpu)


def test_a_gc_that_only_shows_names_what_is_not_found_and_deletes_nothing(
    applied: Shell, other: Shell
) -> None:
    shutil.rmtree(applied.folder)
    _later(applied)
    assert f"`{applied.folder}/" in other.here("gc", "--dry-run").err
    assert _needed(applied)
