"""Many small files, which the store keeps in packs."""

import os
import signal
import sys
from pathlib import Path

import pytest

from sgpu_decl.code import code_store
from sgpu_decl.code.code_store import PACKED, CodeStore
from sgpu_decl.code.snapshot import Snapshot
from sgpu_decl.content.store import object_packs
from sgpu_decl.content.store.file_copies import SMALL
from sgpu_decl.content.store.object_packs import ObjectPacks
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.owner import Presence
from tests.code.conftest import LATER, STATE, Plant, objects, take
from tests.support import refusing

MANY = {f"p{number % 3}/m{number}.py": f"content {number}\n" for number in range(PACKED)}


def _packs(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "store/packs").glob("*"))


def _is_copied(store: CodeStore, code: Snapshot, copy: Path) -> bool:
    store.materialize(code.digest, copy)
    return take(copy).digest == code.digest


def test_many_small_files_are_one_pack_and_come_back_as_they_were(
    plant: Plant, store: CodeStore, tmp_path: Path
) -> None:
    root = plant({**MANY, "empty": "", "run.sh": "#!", "same.sh": "#!", "large": "x" * SMALL})
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("p0/m0.py")
    code = take(root)
    store.put(code)
    assert len(_packs(tmp_path)) == 1
    assert [path.stat().st_size for path in objects(tmp_path)] == [SMALL]
    assert store.lacking(code.digest) == ()
    assert _is_copied(store, code, tmp_path / "copy")
    assert (tmp_path / "copy/run.sh").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "copy/same.sh").stat().st_mode & 0o777 == 0o600
    assert {entry.path: store.content(entry) for entry in code.entries if not entry.target} == {
        entry.path: (root / entry.path).read_bytes() for entry in code.entries if not entry.target
    }


def test_an_edit_adds_one_object_and_no_pack(
    plant: Plant, store: CodeStore, tmp_path: Path
) -> None:
    store.put(take(plant(MANY)))
    edited = take(plant({"p0/m0.py": "edited"}))
    assert store.touch(edited.digest) is False
    store.put(edited)
    assert len(_packs(tmp_path)) == 1
    assert [path.read_text() for path in objects(tmp_path)] == ["edited"]
    assert _is_copied(store, edited, tmp_path / "copy")


def test_a_pack_that_another_process_wrote_is_found(
    plant: Plant, store: CodeStore, tmp_path: Path
) -> None:
    code = take(plant(MANY))
    assert store.touch(code.digest) is False
    CodeStore(tmp_path / "store").put(code)
    assert store.touch(code.digest)
    assert store.content(code.entries[0]) is not None


@pytest.mark.parametrize("damage", ["altered", "shortened", "lengthened", "first line", "deleted"])
def test_a_damaged_pack_is_noticed_and_written_again(
    plant: Plant, store: CodeStore, tmp_path: Path, damage: str
) -> None:
    code = take(plant(MANY))
    store.put(code)
    (pack,) = _packs(tmp_path)
    content = pack.read_bytes()
    if damage == "deleted":
        pack.unlink()
    else:
        pack.write_bytes(
            {
                "altered": content.replace(b"content 7\n", b"CONTENT 7\n"),
                "shortened": content[:-1],
                "lengthened": content + b"x",
                "first line": content.replace(b"[[", b"[ ["),
            }[damage]
        )
        os.utime(pack.parent)  # as another process sees it
        assert ObjectPacks(pack.parent).check(PACKED) == {pack: False}
    if damage != "altered":
        assert not store.touch(code.digest)  # so the next launch puts it
    with refusing("store_damaged", match="no longer holds"):
        store.materialize(code.digest, tmp_path / "one")
    assert not store.touch(code.digest)
    store.put(code)
    assert ObjectPacks(pack.parent).check(PACKED) == {pack: True}
    assert _is_copied(store, code, tmp_path / "two")


def test_a_file_that_changes_before_it_is_packed_is_refused_and_leaves_nothing(
    plant: Plant, store: CodeStore, tmp_path: Path
) -> None:
    code = take(plant(MANY))
    plant({"p0/m99.py": "edited"})
    with pytest.raises(SgpuError, match=r"`p0/m99\.py` changed"):
        store.put(code)
    assert store.manifest(code.digest) is None
    assert _packs(tmp_path) == list((tmp_path / "store").glob(".put-*")) == []


def test_a_put_that_is_killed_at_any_step_leaves_nothing_that_is_believed(
    plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_store, "PACKED", 3)
    monkeypatch.setattr(object_packs, "_BUFFER", 16)  # so a half pack is on the disk
    files = {f"m{number}.py": f"content {number}\n" * 9 for number in range(4)}
    code = take(plant({**files, "large": "x" * SMALL}))
    step, killed = 0, True
    while killed:
        store = CodeStore(tmp_path / f"store{step}")
        child = os.fork()
        if child == 0:
            _kill_at(step)
            store.put(code)
            os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        assert (store.lacking(code.digest) == ()) == store.touch(code.digest)
        if not store.touch(code.digest):
            store.put(code)
        assert _is_copied(store, code, tmp_path / f"copy{step}")
        store.collect(lambda _: Presence.PRESENT)
        assert not list((tmp_path / f"store{step}").glob(".put-*"))
        step += 1
    assert step > 10


def _kill_at(step: int) -> None:
    """Kill this process by SIGKILL right before it opens, makes or renames its next file but
    `step`."""
    left = step

    def hook(event: str, _: object) -> None:
        nonlocal left
        if event in {"open", "os.mkdir", "os.rename"}:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(hook)


def test_gc_deletes_a_pack_once_none_of_its_contents_is_needed(
    plant: Plant, store: CodeStore, tmp_path: Path
) -> None:
    root = plant(MANY)
    store.put(take(root))
    (pack,) = _packs(tmp_path)
    size = pack.stat().st_size
    for path in sorted(root.rglob("*.py"))[1:]:
        path.unlink()
    rest = take(root)
    store.put(rest)
    store.refer(STATE, {rest.digest})
    assert store.collect(lambda _: Presence.PRESENT, now=LATER) == 0
    assert _is_copied(store, rest, tmp_path / "copy")
    store.refer(STATE, ())
    assert store.collect(lambda _: Presence.PRESENT) == 0, "it is young"
    assert store.collect(lambda _: Presence.PRESENT, now=LATER) == size
    assert _packs(tmp_path) == []
