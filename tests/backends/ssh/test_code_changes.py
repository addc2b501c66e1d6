"""Archives of code on a box that are made there from older ones."""

from pathlib import Path

import pytest

from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.backends.box.code_changes import send_code_changes
from sgpu_decl.backends.remote.launching.uploader import write_archive
from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.code.snapshot import snapshot
from sgpu_decl.content.code_tree import archive_name, extract_code
from sgpu_decl.model.step_progress import Quiet


@pytest.fixture
def store(tmp_path: Path) -> CodeStore:
    return CodeStore(tmp_path / "store")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "pkg").mkdir(parents=True)
    for number in range(20):
        (folder / f"pkg/{number}.py").write_text(f"x = {number}\n" * 50)
    return folder


def put(store: CodeStore, project: Path) -> str:
    taken, _ = snapshot(project)
    assert taken is not None
    store.put(taken)
    return taken.digest


def test_what_changed_makes_an_archive_of_the_code_from_an_older_one(
    box: Box, store: CodeStore, project: Path, tmp_path: Path
) -> None:
    folder = f"{box.hello['root']}/code-archives"
    first = put(store, project)
    assert not send_code_changes(box, folder, store, first, Quiet())  # there is none
    Path(folder).mkdir()
    write_archive(store, first, Path(folder, archive_name(first)), Quiet())

    (project / "pkg/3.py").write_text("y = 3\n")
    (project / "pkg/3.py").chmod(0o755)
    (project / "pkg/4.py").unlink()
    (project / "pkg/5.py").unlink()
    (project / "pkg/5.py").symlink_to("6.py")
    (project / "übung").mkdir()
    (project / "übung/new.py").write_text("")
    second = put(store, project)
    assert send_code_changes(box, folder, store, second, Quiet())

    # It compares all with the digest.
    extract_code(
        f"{folder}/{archive_name(second)}", str(tmp_path / "out"), second.partition(":")[2]
    )
    assert (tmp_path / "out/pkg/3.py").read_text() == "y = 3\n"


def test_where_much_changed_or_the_archive_is_damaged_nothing_is_made(
    box: Box, store: CodeStore, project: Path
) -> None:
    folder = Path(box.hello["root"], "code-archives")
    folder.mkdir()
    first = put(store, project)
    (folder / archive_name(first)).write_bytes(b"cut off")
    (project / "pkg/3.py").write_text("y = 3\n")
    assert not send_code_changes(box, str(folder), store, put(store, project), Quiet())
    (project / "pkg/big.py").write_text("y = 3\n" * 10_000)
    assert not send_code_changes(box, str(folder), store, put(store, project), Quiet())

    assert [one.name for one in folder.iterdir()] == [archive_name(first)]
