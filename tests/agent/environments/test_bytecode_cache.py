import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from sgpu_decl.agent.environment.bytecode_cache import bytecode_path, compile_source
from sgpu_decl.agent.environment.python_match import this_python

TAG = sys.implementation.cache_tag
PACKAGES = f"lib/python{this_python().minor}/site-packages"
FILES = {
    "one/__init__.py": "def f():\n    return 1\n",
    "one/same.py": "def f():\n    return 1\n",
    "one/old.py": "print 'for Python 2'\n",
    "one/nulls.py": b"x = 1\0\n",
    "one/latin.py": "# coding: latin-1\nx = 'é'\n".encode("latin-1"),
    "one/warns.py": "x = '\\d'\nassert (1, 'always true')\n",
    "share/not_on_the_path.py": "x = 1\n",
}


def kept(store: Path) -> dict[str, int]:
    folder = store / "bytecode" / TAG
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def pyc(tree: Path, name: str) -> Path:
    return tree / bytecode_path(f"{PACKAGES}/{name}", TAG)


def test_what_has_no_bytecode_is_compiled_for_unchecked_loading(
    make_environment: Any, say: Any, capfd: Any
) -> None:
    told: list[tuple[str, int, int]] = []
    tree = make_environment(FILES).hydrate(advance=lambda *told_: told.append(told_))
    data = pyc(tree, "one/__init__.py").read_bytes()
    assert data[:4] == importlib.util.MAGIC_NUMBER
    assert int.from_bytes(data[4:8], "little") == 0b01
    assert data[8:16] == importlib.util.source_hash(str(FILES["one/__init__.py"]).encode())
    assert pyc(tree, "one/__init__.py").samefile(pyc(tree, "one/same.py"))
    assert pyc(tree, "one/latin.py").exists()
    assert pyc(tree, "one/warns.py").exists()
    for name in ("one/old.py", "one/nulls.py"):
        assert not pyc(tree, name).exists()
    assert not (tree / "share/__pycache__").exists()
    assert told[-1] == ("compiling", 6, 6)  # sources that differ, and the tree's own one
    assert capfd.readouterr() == ("", "")
    where = say(tree, "import one.same\nprint(json.dumps(one.same.f.__code__.co_filename))")
    assert where == f"{tree}/{PACKAGES}/one/same.py"


def test_a_source_is_compiled_once_ever(make_environment: Any) -> None:
    made = make_environment(FILES)
    made.hydrate("first")
    before = kept(made.store)
    more = make_environment({**FILES, "two.py": "x = 2\n"})
    tree = more.hydrate("second")
    after = kept(made.store)
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 1
    assert pyc(tree, "two.py").exists()


def test_damaged_bytecode_is_compiled_again(make_environment: Any, say: Any) -> None:
    made = make_environment(FILES)
    first = pyc(made.hydrate("first"), "one/__init__.py")
    whole = first.read_bytes()
    path = next(
        (made.store / "bytecode" / TAG).glob(f"{made.object(PACKAGES + '/one/__init__.py').name}-*")
    )
    path.chmod(0o644)
    path.write_bytes(whole[:-1])
    second = pyc(made.hydrate("second"), "one/__init__.py")
    assert second.read_bytes() == whole
    assert not second.samefile(first)


def test_bytecode_that_is_there_is_taken(make_environment: Any, say: Any) -> None:
    own = compile_source(b"def f():\n    return 'from the bytecode'\n")
    place = bytecode_path(f"{PACKAGES}/one/__init__.py", TAG)
    made = make_environment({"one/__init__.py": "def f():\n    return 1\n"}, bytecode={place: own})
    tree = made.hydrate()
    assert say(tree, "import one\nprint(json.dumps(one.f()))") == "from the bytecode"
    assert len(kept(made.store)) == 1  # the tree's own module
    shutil.rmtree(made.store / "bytecode")
    assert (tree / place).stat().st_nlink == 2
    assert os.access(tree / "bin/python", os.X_OK)
