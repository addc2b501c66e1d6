import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.content.hydration import altered, whole
from sgpu_decl.content.python_match import this_python
from sgpu_decl.content.tree_files import FIXED_NS, clear, discard, making, shebang

PACKAGES = f"lib/python{this_python().minor}/site-packages"
FILES = {"one/__init__.py": "", "one/two/__init__.py": "x = 1\n", "one/data.txt": "some"}


def opened(folder: Path) -> Path:
    """A folder that one may write to, as root always may."""
    folder.chmod(0o755)
    return folder


def remove_folder(packages: Path) -> None:
    opened(packages / "one")
    for folder, _, _ in os.walk(packages / "one/two"):
        opened(Path(folder))
    shutil.rmtree(packages / "one/two")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a file more": lambda packages: opened(packages / "one").joinpath("new.py").write_text(""),
    "a file less": lambda packages: opened(packages / "one").joinpath("data.txt").unlink(),
    "a folder more": lambda packages: opened(packages).joinpath("three").mkdir(),
    "a folder less": remove_folder,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_tree_whose_folders_changed_is_not_whole_and_is_made_anew(
    make_environment: Any, damage: str
) -> None:
    made = make_environment(FILES)
    tree = made.hydrate()
    assert whole(str(tree))
    DAMAGES[damage](tree / PACKAGES)
    assert not whole(str(tree))
    made.hydrate()
    assert whole(str(tree))
    assert altered(str(tree), made.manifest) == []
    assert [path.name for path in made.trees.iterdir()] == ["tree"]


@pytest.mark.parametrize("path", ["pyvenv.cfg", f"{PACKAGES}/_sgpu_tree.py", ".sgpu-tree.json"])
def test_a_file_of_its_own_that_a_power_cut_emptied(make_environment: Any, path: str) -> None:
    tree = make_environment(FILES).hydrate()
    (tree / path).chmod(0o644)
    os.truncate(tree / path, 0)
    os.utime(tree / path, ns=(FIXED_NS, FIXED_NS))
    assert not whole(str(tree))


def test_a_tree_without_its_interpreter_is_not_whole(make_environment: Any) -> None:
    tree = make_environment(FILES).hydrate()
    opened(tree / "bin")
    (tree / "bin/python").unlink()
    (tree / "bin/python").symlink_to("/nowhere/python")
    os.utime(tree / "bin", ns=(FIXED_NS, FIXED_NS))
    assert not whole(str(tree))
    assert not whole(str(tree.parent / "never"))


def test_what_was_written_to_is_named(make_environment: Any) -> None:
    made = make_environment(FILES, links={"share/link": "../bin"}, scripts={"bin/s": "#!python\n"})
    tree = made.hydrate()
    assert altered(str(tree), made.manifest) == []
    written, kept = f"{PACKAGES}/one/data.txt", f"{PACKAGES}/one/two/__init__.py"
    (tree / written).chmod(0o644)
    (tree / written).write_text("else")  # through the link, into the object
    assert whole(str(tree))
    assert altered(str(tree), made.manifest) == [written]
    (tree / kept).chmod(0o644)
    (tree / kept).write_text("x = 10\n")
    os.utime(tree / kept, ns=(FIXED_NS, FIXED_NS))
    opened(tree / "share")
    (tree / "share/link").unlink()
    assert altered(str(tree), made.manifest) == [written, kept, "share", "share/link"]


def test_what_is_being_made_is_cleared_only_when_nobody_holds_it(tmp_path: Path) -> None:
    place, lock = making(str(tmp_path))
    (Path(place) / "half/made").mkdir(parents=True)
    (Path(place) / "half").chmod(0o555)
    clear(str(tmp_path))
    assert Path(place).is_dir()
    os.close(lock)  # as the kernel does for who dies
    clear(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_tree_is_discarded_with_all_its_closed_folders(make_environment: Any) -> None:
    made = make_environment(FILES)
    tree = made.hydrate()
    source = made.object(f"{PACKAGES}/one/data.txt")
    discard(str(tree))
    discard(str(tree))
    assert list(made.trees.iterdir()) == []
    assert source.stat().st_mode & 0o777 == 0o444


def test_the_first_lines_of_scripts() -> None:
    assert shebang("/t/bin/python", b"") == b"#!/t/bin/python\n"
    assert shebang("/t/bin/python", b" -E") == b"#!/t/bin/python -E\n"
    assert shebang("/a b/python", b" -E") == (
        b"#!/bin/sh\n'''exec' \"/a b/python\" -E \"$0\" \"$@\"\n' '''\n"
    )
    longest = "/" + "x" * 123
    assert shebang(longest, b"") == b"#!" + longest.encode() + b"\n"
    assert shebang(longest + "x", b"").startswith(b"#!/bin/sh\n'''exec' /xxx")
