"""Ranks do not wait for bytecode: they write what is missing in a tree when they import it."""

import importlib.util
import marshal
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.content.hydration import altered, whole
from sgpu_decl.content.python_match import this_python
from sgpu_decl.content.tree_files import bytecode_path, discard

TAG = sys.implementation.cache_tag
PACKAGES = f"lib/python{this_python().minor}/site-packages"
FILES: dict[str, str | bytes] = {
    "one/__init__.py": "def f():\n    return 1\n",
    "one/big.py": "x = [\n" + "    'some text',\n" * 3000 + "]\n",
    "one/old.py": "print 'for Python 2'\n",
    "top.py": "x = 1\n",
    "share/not_on_the_path.py": "x = 1\n",
}
IMPORTS = "import one.big, top\nprint(json.dumps(one.f()))"


def pyc(tree: Path, name: str) -> Path:
    return tree / bytecode_path(f"{PACKAGES}/{name}", TAG)


def test_what_a_rank_compiles_stays_in_the_tree(make_environment: Any, say: Any) -> None:
    made = make_environment(FILES)
    tree = made.hydrate()
    assert [path.name for path in tree.rglob("*.pyc")] == [f"_sgpu_tree.{TAG}.pyc"]
    assert not (tree / "share/__pycache__").exists()
    assert say(tree, IMPORTS) == 1
    assert pyc(tree, "one/big.py").exists()
    assert not pyc(tree, "one/old.py").exists()
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*.pyc")}
    assert {path.name.partition(".")[0] for path in before} == {
        "__init__", "big", "top", "_sgpu_tree",
    }  # fmt: skip

    assert (whole(str(tree)), altered(str(tree), made.manifest)) == (True, [])
    made.hydrate()  # nothing to do
    assert say(tree, IMPORTS) == 1
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*.pyc")} == before


def test_bytecode_that_an_environment_brings_is_taken(make_environment: Any, say: Any) -> None:
    source = b"def f():\n    return 1\n"
    code = compile("def f():\n    return 'from the bytecode'\n", "one", "exec")
    head = importlib.util.MAGIC_NUMBER + b"\1\0\0\0" + importlib.util.source_hash(source)
    place = bytecode_path(f"{PACKAGES}/one/__init__.py", TAG)
    made = make_environment(
        {"one/__init__.py": source}, bytecode={place: head + marshal.dumps(code)}
    )
    tree = made.hydrate()
    assert say(tree, "import one\nprint(json.dumps(one.f()))") == "from the bytecode"
    assert (tree / place).stat().st_nlink == 2
    (tree / place).chmod(0o644)
    (tree / place).write_bytes(head)  # through the link, into the object
    assert altered(str(tree), made.manifest) == [place]


def test_the_next_tree_has_what_is_compiled_of_the_same_sources(
    make_environment: Any, say: Any
) -> None:
    first = make_environment(FILES).hydrate("first")
    say(first, IMPORTS)
    changed = make_environment({**FILES, "top.py": "x = 2\n", "two.py": ""})
    second = changed.hydrate("second")
    assert pyc(second, "one/big.py").samefile(pyc(first, "one/big.py"))
    assert not pyc(second, "top.py").exists()
    discard(str(first))
    stamp = pyc(second, "one/big.py").stat().st_mtime_ns
    assert say(second, IMPORTS + "\nassert top.x == 2") == 1
    assert pyc(second, "one/big.py").stat().st_mtime_ns == stamp


def test_no_bytecode_is_taken_from_a_tree_that_a_power_cut_may_have_damaged(
    make_environment: Any, say: Any
) -> None:
    first = make_environment(FILES).hydrate("first")
    say(first, IMPORTS)
    record = first / ".sgpu-tree.json"
    first.chmod(0o755)
    record.chmod(0o644)
    record.write_text(record.read_text().replace('"boot":"', '"boot":"an earlier one, '))
    second = make_environment(FILES).hydrate("second")
    assert [path.name for path in second.rglob("*.pyc")] == [f"_sgpu_tree.{TAG}.pyc"]


def test_a_full_disk_leaves_no_half_of_a_file(make_environment: Any, say: Any) -> None:
    tree = make_environment(FILES).hydrate()
    done = subprocess.run(
        [tree / "bin/python", "-c", "import one.big"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert pyc(tree, "one/__init__.py").exists()
    names = os.listdir(tree / PACKAGES / "one/__pycache__")
    assert not [name for name in names if name.startswith("big")]
    assert say(tree, IMPORTS) == 1


def test_python_that_is_to_write_none_keeps_that_of_the_tree(
    make_environment: Any, say: Any, tmp_path: Path
) -> None:
    tree = make_environment(FILES).hydrate()
    (tmp_path / "mine.py").write_text("x = 1\n")
    say(tree, f"import mine\n{IMPORTS}", PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=str(tmp_path))
    assert pyc(tree, "one/big.py").exists()
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root writes into read-only folders")
def test_optimised_ranks_of_root_leave_a_tree_whole(make_environment: Any) -> None:
    made = make_environment(FILES)
    tree = made.hydrate()
    subprocess.run([tree / "bin/python", "-O", "-c", "import one.big"], check=True)
    assert list(tree.rglob("*.opt-1.pyc"))
    assert (whole(str(tree)), altered(str(tree), made.manifest)) == (True, [])
