import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.content.hydration import (
    DamagedObjects,
    InterpreterMismatch,
    hydrate,
    whole,
)
from sgpu_decl.content.manifest import BadManifest
from sgpu_decl.content.python_match import base_executable, this_python
from sgpu_decl.content.tree_files import FIXED_NS
from sgpu_decl.content.workers import WorkerError

MINOR = this_python().minor
PACKAGES = f"lib/python{MINOR}/site-packages"
HELLO = {
    "hello/__init__.py": "def main():\n    import sys\n    print('hello from', sys.prefix)\n",
    "hello-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n",
    "hello-1.0.dist-info/entry_points.txt": "[console_scripts]\nhello = hello:main\n",
}
SCRIPT = "#!python\nfrom hello import main\nmain()\n"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_tree_is_an_environment_to_python(make_environment: Any, say: Any) -> None:
    made = make_environment(HELLO, scripts={"bin/hello": SCRIPT}, links={"bin/hi": "hello"})
    tree = made.hydrate()
    seen = say(
        tree,
        "import importlib.metadata as m, os, site, hello\n"
        "print(json.dumps([sys.prefix, sys.base_prefix, sys.exec_prefix, m.version('hello'),"
        " m.entry_points(group='console_scripts')['hello'].value,"
        " [it for it in site.getsitepackages() if os.path.isdir(it)],"
        " hello.__file__, hello.__cached__, hello.main.__code__.co_filename]))",
    )
    packages = str(tree / PACKAGES)
    module = f"{packages}/hello/__init__.py"
    assert seen == [
        str(tree),
        sys.base_prefix,
        str(tree),
        "1.0",
        "hello:main",
        [packages],
        module,
        importlib.util.cache_from_source(module),
        module,
    ]
    for script in ("hello", "hi"):
        said = subprocess.run([tree / "bin" / script], capture_output=True, text=True, check=True)
        assert said.stdout == f"hello from {tree}\n"
    command = [tree / "bin/python3", "-m", "site"]
    assert packages in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert os.path.realpath(tree / f"bin/python{MINOR}") == base_executable()


def test_files_share_the_objects_and_are_closed(make_environment: Any) -> None:
    made = make_environment(HELLO, executables={"bin/tool": b"\x7fELF"})
    tree = made.hydrate()
    inside = f"{PACKAGES}/hello/__init__.py"
    assert (tree / inside).samefile(made.object(inside))
    assert (tree / "bin/tool").samefile(made.object("bin/tool"))
    for folder, _, files in os.walk(tree):
        mode = 0o755 if folder.endswith("__pycache__") else 0o555
        assert os.stat(folder).st_mode & 0o777 == mode
        assert os.stat(folder).st_mtime_ns == FIXED_NS
        for name in files:
            seen = os.lstat(os.path.join(folder, name))
            assert seen.st_mtime_ns == FIXED_NS
            assert os.path.islink(os.path.join(folder, name)) or seen.st_mode & 0o222 == 0
    assert (tree / "bin/tool").stat().st_mode & 0o777 == 0o555
    assert names(made.trees) == ["tree"]


def test_the_same_manifest_makes_the_same_tree(make_environment: Any) -> None:
    made = make_environment(HELLO, scripts={"bin/hello": SCRIPT})
    tree = made.hydrate()
    first = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    before = {path: os.lstat(path).st_ino for path in first}
    made.hydrate()
    assert {path: os.lstat(path).st_ino for path in first} == before  # left as it was
    shutil.move(tree, made.trees / "old")
    made.hydrate()
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == first


def test_further_sites_follow_in_order_with_their_own_pth_files(
    make_environment: Any, say: Any
) -> None:
    second, third = f"lib/python{MINOR}/site-1", f"lib/python{MINOR}/site 2'\""
    made = make_environment(
        {
            "aaa.pth": "from_first\n",
            "from_first/one.py": "",
            "shared/first.py": "",
            f"{second}/shared/second.py": "",
            f"{second}/paths.pth": "added\n# a comment\nimport sys; sys.said = 'yes'\n",
            f"{second}/added/two.py": "",
            f"{third}/shared/third.py": "",
            f"{third}/two.py": "raise ImportError('hidden by the site before')\n",
        },
        sites=(PACKAGES, second, third),
    )
    tree = made.hydrate()
    seen = say(
        tree,
        "import one, two, shared.first, shared.second, shared.third\n"
        "print(json.dumps([[p for p in sys.path if p.startswith(sys.prefix)], sys.said,"
        " list(shared.__path__)]))",
    )
    sites = [str(tree / site) for site in (PACKAGES, second, third)]
    path = [sites[0], f"{sites[0]}/from_first", sites[1], f"{sites[1]}/added", sites[2]]
    assert seen == [path, "yes", [f"{site}/shared" for site in sites]]


@pytest.mark.parametrize("name", ["short", "with a space", "long" * 40])
def test_scripts_start_wherever_the_tree_lies(make_environment: Any, name: str) -> None:
    made = make_environment(
        HELLO, scripts={"bin/hello": SCRIPT, "bin/isolated": "#!python -I" + SCRIPT[8:]}
    )
    tree = made.hydrate(name)
    for script in ("hello", "isolated"):
        said = subprocess.run([tree / "bin" / script], capture_output=True, text=True, check=True)
        assert said.stdout == f"hello from {tree}\n"
    first = (tree / "bin/hello").read_bytes().split(b"\n")[0]
    assert first == (f"#!{tree}/bin/python".encode() if name == "short" else b"#!/bin/sh")


def test_names_that_are_not_utf8(make_environment: Any) -> None:
    made = make_environment({"data/\udcff.txt": "odd", "data/ü.txt": "even"})
    tree = made.hydrate()
    folder = os.fsencode(tree / PACKAGES / "data")
    assert sorted(os.listdir(folder)) == ["ü.txt".encode(), b"\xff.txt"]
    assert whole(str(tree))


@pytest.mark.parametrize("damage", ["flipped", "shorter", "longer", "missing"])
@pytest.mark.parametrize("large", [False, True])
def test_damaged_objects_are_named_and_nothing_is_made(
    make_environment: Any, damage: str, large: bool
) -> None:
    content = os.urandom(3_000_000 if large else 300)
    made = make_environment({**HELLO, "data.bin": content, "other.bin": content[::-1]})
    keys = []
    for name in ("data.bin", "other.bin"):
        path = made.object(f"{PACKAGES}/{name}")
        keys.append(path.name)
        data = path.read_bytes()
        path.unlink()
        if damage != "missing":
            middle = len(data) // 2
            flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
            path.write_bytes(
                {"flipped": flipped, "shorter": data[:-1], "longer": data + b"\0"}[damage]
            )
    with pytest.raises(DamagedObjects) as caught:
        made.hydrate()
    assert caught.value.objects == sorted(keys)
    assert names(made.trees) == []


def test_another_python_is_refused_before_anything_is_made(make_environment: Any) -> None:
    for python, word in (
        ({"version": "3.1.4"}, "Python 3.1, and this is Python"),
        ({"abi": "cpython-31-x86_64-linux-gnu"}, "the ABI cpython-31-"),
        ({"platform": "linux-s390x"}, "made for linux-s390x"),
        ({"libc": "glibc-99.1"}, "made for glibc 99.1, and this is glibc"),
        ({"libc": "musl-1.2"}, "made for musl 1.2"),
        ({"implementation": "pypy"}, "made for pypy"),
    ):
        made = make_environment(HELLO, **python)
        with pytest.raises(InterpreterMismatch, match=word):
            made.hydrate()
        assert not made.trees.exists()
    make_environment(HELLO, libc="glibc-2.2.5", version=f"{MINOR}.99").hydrate()


def test_an_interpreter_that_is_not_there(make_environment: Any) -> None:
    made = make_environment(HELLO)
    with pytest.raises(WorkerError, match="/nowhere/python"):
        hydrate(made.manifest, str(made.objects), str(made.trees / "tree"), "/nowhere/python")
    with pytest.raises(WorkerError, match="ended with 1"):
        hydrate(made.manifest, str(made.objects), str(made.trees / "tree"), "/bin/false")
    assert not made.trees.exists()


@pytest.mark.parametrize("path", ["pyvenv.cfg", "bin/python", ".sgpu-tree.json", "lib64/x"])
def test_the_files_of_the_tree_itself_are_nobody_elses(make_environment: Any, path: str) -> None:
    with pytest.raises(BadManifest, match="every tree has of its own"):
        make_environment(HELLO, scripts={path: SCRIPT}).hydrate()


def test_where_there_are_no_hard_links_files_are_copied(
    make_environment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_environment({**HELLO, "data.bin": os.urandom(300_000)})
    other = Path("/dev/shm") if os.path.isdir("/dev/shm") else None
    if other is None or other.stat().st_dev == made.objects.stat().st_dev:
        pytest.skip("there is no second file system to write to")
    tree = other / f"sgpu-test-{os.getpid()}" / "tree"
    try:
        hydrate(made.manifest, str(made.objects), str(tree), sys.executable)
        inside = f"{PACKAGES}/data.bin"
        assert (tree / inside).read_bytes() == made.object(inside).read_bytes()
        seen = (tree / inside).stat()
        assert (seen.st_nlink, seen.st_mode & 0o777, seen.st_mtime_ns) == (1, 0o444, FIXED_NS)
        assert whole(str(tree))
    finally:
        linking_remove(tree)


def linking_remove(tree: Path) -> None:
    from sgpu_decl.content.tree_files import discard

    discard(str(tree))
    tree.parent.rmdir()
