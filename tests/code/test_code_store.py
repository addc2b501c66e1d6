import errno
import hashlib
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.code.code_store import PACKED, CodeStore
from sgpu_decl.content.store.file_copies import CHUNK, SMALL
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.owner import Owner, Presence
from tests.code.conftest import LATER, STATE, Plant, objects, take
from tests.support import refusing, some

PUTS = """
import sys
from functools import partial
from pathlib import Path
from typing import Any
from sgpu_decl.code.snapshot import snapshot
from sgpu_decl.code.code_store import CodeStore
CodeStore(Path(sys.argv[2])).put(snapshot(Path(sys.argv[1]))[0])
"""


def test_what_was_put_comes_back_as_it_was(plant: Plant, store: CodeStore, tmp_path: Path) -> None:
    root = plant({"a.py": "print()", "p/run.sh": "#!", "empty": ""})
    (root / "p/run.sh").chmod(0o755)
    (root / "p/link").symlink_to("../a.py")
    taken = take(root)
    store.put(taken)
    for reader in (store, CodeStore(tmp_path / "store")):
        assert some(reader.manifest(taken.digest)).entries == taken.entries
    copy = tmp_path / "attempt/code"
    store.materialize(taken.digest, copy)
    assert take(copy).digest == taken.digest
    assert (copy / "p/run.sh").stat().st_mode & 0o777 == 0o700
    assert (copy / "a.py").stat().st_mode & 0o777 == 0o600


def test_a_copy_is_the_attempts_own(plant: Plant, store: CodeStore, tmp_path: Path) -> None:
    root = plant({"a.py": "one"})
    taken = take(root)
    store.put(taken)
    store.materialize(taken.digest, tmp_path / "one")
    (tmp_path / "one/a.py").write_text("scribbled")
    store.materialize(taken.digest, tmp_path / "two")
    assert (tmp_path / "two/a.py").read_text() == "one"
    assert (root / "a.py").read_text() == "one"


def test_the_planned_bytes_are_kept_when_the_tree_moves_on(
    plant: Plant, store: CodeStore, tmp_path: Path
) -> None:
    root = plant({"a.py": "planned"})
    taken = take(root)
    store.put(taken)
    (root / "a.py").write_text("edited")
    store.materialize(taken.digest, tmp_path / "copy")
    assert (tmp_path / "copy/a.py").read_text() == "planned"


def test_equal_content_is_stored_once(plant: Plant, store: CodeStore, tmp_path: Path) -> None:
    taken = take(plant({"a.py": "same", "b.py": "same", "c.py": "other"}))
    store.put(taken)
    store.put(taken)
    assert len(objects(tmp_path)) == 2


def test_the_store_is_for_the_user_alone(plant: Plant, store: CodeStore, tmp_path: Path) -> None:
    store.put(take(plant({"a.py": "x"})))
    for path in (tmp_path / "store").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_file_that_changes_between_looking_and_putting_is_refused(
    plant: Plant, store: CodeStore
) -> None:
    root = plant({"a.py": "one"})
    taken = take(root)
    (root / "a.py").write_text("two")
    with pytest.raises(SgpuError, match=r"`a\.py` changed"):
        store.put(taken)
    assert store.manifest(taken.digest) is None


def test_what_was_never_put_is_not_there(store: CodeStore, tmp_path: Path) -> None:
    assert store.manifest("sha256:" + "0" * 64) is None
    with pytest.raises(SgpuError, match="not in the store"):
        store.materialize("sha256:" + "0" * 64, tmp_path / "copy")


@pytest.mark.parametrize("length", [0, SMALL - 1, SMALL, SMALL + 1, 3 * CHUNK])
def test_a_file_of_any_length_is_copied_whole(
    plant: Plant, store: CodeStore, tmp_path: Path, length: int
) -> None:
    root = plant({"data": ""})
    content = bytes(number % 251 for number in range(length))
    (root / "data").write_bytes(content)
    taken = take(root)
    assert taken.entries[0].digest == hashlib.sha256(content).hexdigest()
    store.put(taken)
    store.materialize(taken.digest, tmp_path / "copy")
    assert (tmp_path / "copy/data").read_bytes() == content


@pytest.mark.parametrize("damage", ["altered", "shortened", "deleted"])
def test_a_damaged_object_is_named_and_taken_in_anew(
    plant: Plant, store: CodeStore, tmp_path: Path, damage: str
) -> None:
    taken = take(plant({"a.py": "content"}))
    store.put(taken)
    (stored,) = objects(tmp_path)
    if damage == "deleted":
        stored.unlink()
    else:
        stored.write_text("CONTENT" if damage == "altered" else "c")
    with pytest.raises(SgpuError, match=r"`a\.py`"):
        store.materialize(taken.digest, tmp_path / "one")
    assert store.manifest(taken.digest) is None
    store.put(taken)
    store.materialize(taken.digest, tmp_path / "two")
    assert (tmp_path / "two/a.py").read_text() == "content"


def test_an_object_that_a_power_cut_left_short_is_written_again(
    plant: Plant, store: CodeStore, tmp_path: Path
) -> None:
    taken = take(plant({"a.py": "content"}))
    store.put(taken)
    assert store.touch(taken.digest)
    (stored,) = objects(tmp_path)
    stored.write_bytes(b"")
    assert not store.touch(taken.digest)  # so the next launch puts it
    store.put(taken)
    store.materialize(taken.digest, tmp_path / "copy")
    assert (tmp_path / "copy/a.py").read_text() == "content"


def test_a_damaged_manifest_is_no_snapshot(plant: Plant, store: CodeStore, tmp_path: Path) -> None:
    taken = take(plant({"a.py": "x"}))
    store.put(taken)
    (manifest,) = (tmp_path / "store/manifests").iterdir()
    manifest.write_bytes(b"\xff[]")
    other = CodeStore(tmp_path / "store")
    assert other.manifest(taken.digest) is None
    other.put(taken)
    assert CodeStore(tmp_path / "store").manifest(taken.digest) is not None


@pytest.mark.parametrize("files", [50, PACKED])
def test_processes_may_put_the_same_tree_at_once(
    plant: Plant, store: CodeStore, tmp_path: Path, files: int
) -> None:
    root = plant({f"m{number}.py": str(number) for number in range(files)})
    command = [sys.executable, "-c", PUTS, str(root), str(tmp_path / "store")]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    taken = take(root)
    store.materialize(taken.digest, tmp_path / "copy")
    assert take(tmp_path / "copy").digest == taken.digest
    assert not list((tmp_path / "store").glob(".put-*"))


MUCH_LATER = time.time() + 31 * 86400


def _present(_: Owner) -> Presence:
    return Presence.PRESENT


def _missing(_: Owner) -> Presence:
    return Presence.MISSING


def test_collect_keeps_what_a_state_refers_to_and_what_is_young(
    plant: Plant, store: CodeStore, tmp_path: Path
) -> None:
    first = take(plant({"a.py": "kept", "b.py": "first"}))
    store.put(first)
    second = take(plant({"b.py": "second!"}))
    store.put(second)
    store.refer(STATE, {second.digest})
    assert store.collect(_present) == 0
    assert store.collect(_present, now=LATER) == len("first")
    assert store.manifest(first.digest) is None
    store.materialize(second.digest, tmp_path / "copy")


def test_a_state_that_is_missing_for_long_keeps_nothing(
    plant: Plant, store: CodeStore, tmp_path: Path
) -> None:
    taken = take(plant({"a.py": "12345"}))
    store.put(taken)
    store.refer(STATE, {taken.digest})
    assert store.collect(_missing, now=LATER) == 0
    assert store.collect(_missing, now=MUCH_LATER) == 5
    assert objects(tmp_path) == []


def test_a_state_that_cannot_be_asked_keeps_what_it_needs(plant: Plant, store: CodeStore) -> None:
    taken = take(plant({"a.py": "12345"}))
    store.put(taken)
    store.refer(STATE, {taken.digest})
    assert store.collect(lambda _: Presence.UNKNOWN, now=MUCH_LATER) == 0


def test_a_saved_plan_keeps_its_code_until_it_is_missing_for_long(
    plant: Plant, store: CodeStore, tmp_path: Path
) -> None:
    taken = take(plant({"a.py": "12345"}))
    store.put(taken)
    plan = tmp_path / "saved.plan"
    plan.touch()
    store.refer(Owner(path=str(plan)), {taken.digest})
    assert store.collect(_missing, now=MUCH_LATER) == 0
    plan.unlink()
    assert store.collect(_missing, now=LATER) == 0
    assert store.collect(_missing, now=MUCH_LATER) == 5


@pytest.mark.parametrize("why", ["store_unwritable", "store_damaged"])
def test_a_manifest_that_cannot_be_read_now_deletes_nothing(
    plant: Plant, store: CodeStore, tmp_path: Path, why: str
) -> None:
    taken = take(plant({"a.py": "12345"}))
    store.put(taken)
    store.put(take(plant({"b.py": "not needed"})))
    store.refer(STATE, {taken.digest})
    manifest = tmp_path / f"store/manifests/{taken.digest.removeprefix('sha256:')}.json"
    before = objects(tmp_path)
    content = manifest.read_bytes()
    manifest.unlink()
    if why == "store_unwritable":
        manifest.mkdir()  # as a disk that fails: what is there cannot be read
    else:
        manifest.write_bytes(content[:-1])
    for store_of_another_process in (store, CodeStore(tmp_path / "store")):
        with refusing(why):
            store_of_another_process.collect(_present, now=LATER)
        assert objects(tmp_path) == before
    if why == "store_unwritable":
        manifest.rmdir()
    manifest.write_bytes(content)
    shown = store.collect(_present, now=LATER, dry_run=True)
    assert objects(tmp_path) == before
    assert store.collect(_present, now=LATER) == shown == len("12345not needed") - 5
    assert store.lacking(taken.digest) == ()


@pytest.mark.parametrize("folder", ["manifests", "roots"])
def test_records_that_cannot_be_listed_now_delete_nothing(
    plant: Plant, store: CodeStore, tmp_path: Path, folder: str
) -> None:
    taken = take(plant({"a.py": "12345"}))
    store.put(taken)
    store.refer(STATE, {taken.digest})
    child = os.fork()
    if child == 0:
        sys.addaudithook(partial(_refuse_list, str(tmp_path / "store" / folder)))
        try:
            store.collect(_present, now=LATER)
        except SgpuError as error:
            os._exit(int(error.code == "store_unwritable"))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert store.lacking(taken.digest) == ()


def _refuse_list(folder: str, event: str, arguments: tuple[Any, ...]) -> None:
    """As of a folder that the kernel refuses to list."""
    if event in {"os.listdir", "os.scandir"} and os.fspath(arguments[0]) == folder:
        raise PermissionError(errno.EACCES, "refused", folder)


def test_collect_sweeps_what_a_killed_put_left(store: CodeStore, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/.put-abc").write_text("half")
    store.collect(_present)
    assert not (tmp_path / "store/.put-abc").exists()


def test_a_store_that_cannot_be_written_says_so(
    plant: Plant, store: CodeStore, tmp_path: Path
) -> None:
    (tmp_path / "store").write_text("in the way")
    with refusing("store_unwritable", match="store"):
        store.put(take(plant({"a.py": ""})))


@pytest.mark.parametrize("call", ["put", "touch"])
def test_a_writer_that_waits_for_a_gc_says_so(plant: Plant, store: CodeStore, call: str) -> None:
    taken = take(plant({"a.py": ""}))
    store.put(taken)
    gc, said = ExitStack(), set[str]()

    class Watched:
        """Hears that the writer waits, and ends the gc."""

        def advance(self, phase: str, done: int, total: int) -> None:
            said.add(phase)
            gc.close()

    with gc:
        gc.enter_context(store.references.alone())
        if call == "put":
            store.put(taken, Watched())
        else:
            assert store.touch(taken.digest, Watched())
    assert "collecting" in said
