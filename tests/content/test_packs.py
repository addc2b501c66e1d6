"""Environments sent in packs and unpacked, and packs that somebody made to do harm."""

import gzip
import hashlib
import io
import json
import os
import random
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.content.hydration import hydrate, whole
from sgpu_decl.content.pack_reader import unpack
from sgpu_decl.content.packs import MOST, BadPack, Index, Pack, index_name, manifest_name
from sgpu_decl.content.python_match import this_python
from sgpu_decl.content.store.pack_writer import make_index, send, write_pack
from sgpu_decl.content.tree_files import FIXED_NS, discard
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.file_place import ignore_bytes
from sgpu_decl.places.folder import FolderPlace

PACKAGES = f"lib/python{this_python().minor}/site-packages"
FILES = {
    "one/__init__.py": "x = 1\n",
    "one/empty.py": "",
    "one/data.bin": random.Random(1).randbytes(700_000),
    "two.py": "y = 2\n",
}


class Counting(FolderPlace):
    """A place that counts what is brought to it, and breaks off after so many files."""

    def __init__(self, folder: Path, *, breaks_after: int = 1000) -> None:
        super().__init__(folder)
        self.folder = str(folder)
        self.brought: list[str] = []
        self._left = breaks_after

    def put(self, path: str, content: bytes | Path, sent: Any = ignore_bytes) -> None:
        if self._left == 0:
            raise ConnectionResetError("the line is cut")
        self._left -= 1
        super().put(path, content, sent)
        self.brought.append(os.path.basename(path))


def receive(made: Any, packs: Path, objects: Path) -> None:
    unpack(made.manifest, str(packs), str(objects), sys.executable, advance=Quiet().advance)


def listing(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def sent(make_environment: Any, tmp_path: Path) -> tuple[Any, Pack, Path]:
    """An environment, its one pack, and the folder that it was sent to."""
    made = make_environment(FILES, executables={"bin/tool": b"\x7fELF"})
    packs = tmp_path / "packs"
    send(made.manifest, made.objects, FolderPlace(packs), str(packs), Quiet())
    (pack,) = make_index(made.manifest).packs
    return made, pack, packs


def test_what_is_sent_arrives(sent: Any, tmp_path: Path) -> None:
    made, pack, packs = sent
    objects = tmp_path / "worker/objects"
    receive(made, packs, objects)
    assert listing(objects) == listing(made.objects)
    for path in objects.rglob("??/*"):
        seen = path.stat()
        mode = 0o555 if path.name.endswith(".x") else 0o444
        assert (seen.st_mode & 0o777, seen.st_mtime_ns) == (mode, FIXED_NS)
    tree = tmp_path / "worker/trees/tree"
    hydrate(made.manifest, str(objects), str(tree), sys.executable)
    assert whole(str(tree))
    discard(str(tree))
    (packs / pack.name).unlink()
    receive(made, packs, objects)  # nothing is missing, so nothing is read


def test_only_new_objects_are_sent(make_environment: Any, tmp_path: Path) -> None:
    place = Counting(tmp_path / "packs")
    files = {f"p{number}.py": f"{number}\n" for number in range(1500)}
    first = make_environment(files)
    send(first.manifest, first.objects, place, place.folder, Quiet())
    upgraded = make_environment({**files, "p7.py": "upgraded\n"})
    before, after = make_index(first.manifest).packs, make_index(upgraded.manifest)
    place.brought.clear()
    send(upgraded.manifest, upgraded.objects, place, place.folder, Quiet())
    new = [pack.name for pack in after.packs if pack not in before]
    assert len(new) < len(after.packs)
    assert sorted(place.brought) == sorted([*new, *after.files[-2:]])
    receive(upgraded, tmp_path / "packs", tmp_path / "worker/objects")


def test_packs_are_cut_by_their_objects_and_bounded(make_environment: Any) -> None:
    files = {f"p{number}.py": f"{number}\n" for number in range(1500)}
    packs = make_index(make_environment(files).manifest).packs
    assert len(packs) > 1
    assert all(pack.contents[-1][0].startswith("00") for pack in packs[:-1])
    more = make_index(make_environment({**files, "a.py": "a = 1\n"}).manifest).packs
    assert set(packs[1:]) <= set(more)
    manifest = make_environment(FILES).manifest
    large = manifest._replace(
        files=tuple(file._replace(size=MOST // 2 + 1) for file in manifest.files)
    )
    assert [len(pack.contents) for pack in make_index(large).packs] == [1] * len(large.files)


def test_the_same_objects_make_the_same_pack(sent: Any, tmp_path: Path) -> None:
    made, pack, packs = sent
    write_pack(pack, made.objects, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (packs / pack.name).read_bytes()


def test_an_interrupted_transfer_goes_on(make_environment: Any, tmp_path: Path) -> None:
    made = make_environment({f"p{number}.py": f"{number}\n" for number in range(1500)})
    index = make_index(made.manifest)
    cut = Counting(tmp_path / "packs", breaks_after=3)
    with pytest.raises(ConnectionResetError):
        send(made.manifest, made.objects, cut, cut.folder, Quiet())
    (tmp_path / "packs/.half.part").write_bytes(b"half")
    with pytest.raises(BadPack, match="the transfer was not completed"):
        receive(made, tmp_path / "packs", tmp_path / "worker/objects")
    place = Counting(tmp_path / "packs")
    send(made.manifest, made.objects, place, place.folder, Quiet())
    assert set(cut.brought) | set(place.brought) == set(index.files)
    assert set(cut.brought) & set(place.brought) == {manifest_name(index.manifest)}
    receive(made, tmp_path / "packs", tmp_path / "worker/objects")
    sent = place.get(f"{place.folder}/{index_name(index.manifest)}")
    assert Index.from_bytes(sent, made.manifest) == index


def test_a_damaged_object_is_not_sent(make_environment: Any, tmp_path: Path) -> None:
    made = make_environment(FILES)
    path = made.object(f"{PACKAGES}/two.py")
    path.chmod(0o644)
    path.write_bytes(b"y = 4\n")
    place = Counting(tmp_path / "packs")
    with pytest.raises(SgpuError, match=path.name):
        send(made.manifest, made.objects, place, place.folder, Quiet())
    assert index_name(made.manifest.digest) not in place.brought


def a_tar(kind: bytes, name: str, target: str = "") -> Callable[[bytes, Pack], bytes]:
    def make(_plain: bytes, _pack: Pack) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
        return buffer.getvalue() + os.urandom(1000)

    return make


def head_with(change: Callable[[list[Any]], object]) -> Callable[[bytes, Pack], bytes]:
    """The same bytes below a head that says something else of them."""

    def make(plain: bytes, pack: Pack) -> bytes:
        contents: list[list[Any]] = [list(content) for content in pack.contents]
        change(contents)
        head = Pack(tuple((key, size) for key, size in contents)).head
        return gzip.compress(head + plain[len(pack.head) :])

    return make


def flipped(plain: bytes, _pack: Pack) -> bytes:
    return gzip.compress(plain[:-1] + bytes([plain[-1] ^ 1]))


HOSTILE: dict[str, Callable[[bytes, Pack], bytes]] = {
    "an absolute path": a_tar(tarfile.REGTYPE, "/tmp/sgpu-was-here"),
    "a path upwards": a_tar(tarfile.REGTYPE, "../../sgpu-was-here"),
    "a symbolic link": a_tar(tarfile.SYMTYPE, "objects", "/tmp"),
    "a hard link": a_tar(tarfile.LNKTYPE, "objects", "/etc/passwd"),
    "a device": a_tar(tarfile.CHRTYPE, "objects"),
    "a name upwards": head_with(lambda item: item[0].__setitem__(0, "../../sgpu-was-here")),
    "a name in capitals": head_with(lambda item: item[0].__setitem__(0, item[0][0].upper())),
    "an object twice": head_with(lambda item: item.append(item[0])),
    "an object more": lambda plain, pack: gzip.compress(plain + b"more"),
    "an object less": head_with(lambda item: item.pop()),
    "other bytes": flipped,
    "bytes without end": lambda plain, pack: gzip.compress(plain + bytes(200_000_000), 9),
    "cut off in the middle": lambda plain, pack: gzip.compress(plain)[: len(plain) // 2],
    "cut off at its end": lambda plain, pack: gzip.compress(plain)[:-1],
    "cut off before an object": lambda plain, pack: gzip.compress(plain[: len(pack.head)]),
    "a second member": lambda plain, pack: gzip.compress(plain) + gzip.compress(b"more"),
    "rubbish behind it": lambda plain, pack: gzip.compress(plain) + b"more",
    "no pack at all": lambda plain, pack: os.urandom(len(plain)),
    "nothing": lambda plain, pack: b"",
    "too small for what it declares": lambda plain, pack: gzip.compress(plain[:40])[:40],
}


@pytest.mark.parametrize("harm", HOSTILE)
def test_a_hostile_pack_is_refused_and_leaves_nothing(sent: Any, tmp_path: Path, harm: str) -> None:
    made, pack, packs = sent
    file = packs / pack.name
    file.write_bytes(HOSTILE[harm](gzip.decompress(file.read_bytes()), pack))
    before = listing(tmp_path)
    objects = tmp_path / "worker/objects"
    with pytest.raises(BadPack):
        receive(made, packs, objects)
    assert listing(tmp_path) == before
    assert [path.name for path in objects.parent.rglob("*")] == ["objects"]


BAD_INDEXES: dict[str, Callable[[dict[str, Any]], object]] = {
    "of another format": lambda raw: raw.update(v=2),
    "of another manifest": lambda raw: raw.update(manifest="sha256:" + "0" * 64),
    "an object less": lambda raw: raw["packs"][0].pop(),
    "an object twice": lambda raw: raw["packs"].append(raw["packs"][0]),
    "a path for a name": lambda raw: raw["packs"][0].append(["../../x", 1]),
    "a name in capitals": lambda raw: raw["packs"][0].append(["A" * 64, 1]),
    "another size": lambda raw: raw["packs"][0][0].__setitem__(1, 10**15),
    "a negative size": lambda raw: raw["packs"][0].append(["a" * 64, -1]),
    "mostly what nobody needs": lambda raw: raw["packs"][0].append(["a" * 64, 10**6]),
    "a pack beyond all bounds": lambda raw: raw["packs"].append([["a" * 64, MOST], ["b" * 64, 1]]),
    "no list": lambda raw: raw.update(packs=7),
}


@pytest.mark.parametrize("harm", BAD_INDEXES)
def test_a_bad_index_is_refused_before_anything_is_read(
    sent: Any, tmp_path: Path, harm: str
) -> None:
    made, _, packs = sent
    file = packs / index_name(made.manifest.digest)
    raw = json.loads(file.read_bytes())
    BAD_INDEXES[harm](raw)
    file.write_text(json.dumps(raw))
    with pytest.raises(BadPack):
        receive(made, packs, tmp_path / "worker/objects")
    assert listing(tmp_path / "worker") == {}


def test_names_of_packs_tell_what_they_hold() -> None:
    pack = Pack((("a" * 64, 3), ("b" * 64 + ".x", 0)))
    assert pack.name == hashlib.sha256(pack.head).hexdigest() + ".pack"
    assert pack.head == b'sgpu-pack 1\n[["' + b"a" * 64 + b'",3],["' + b"b" * 64 + b'.x",0]]\n'
