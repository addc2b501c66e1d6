"""The folders of node programs on a node."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.agent.system.locks import create_held
from sgpu_decl.backends.archives import agent_zip
from sgpu_decl.backends.ray.cluster.node_folder import delete_content

AGENT = agent_zip()[1]


@pytest.fixture
def new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Makes the folder of one node program."""
    from sgpu_decl.backends.ray.cluster import node_actor

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(node_actor, "_add_packages", lambda _archive: None)  # it is imported here
    return lambda: Path(node_actor._run_folder(AGENT))


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / f"sgpu-nodes-{os.getuid()}"


def test_folders_of_node_programs_that_are_gone_are_deleted(
    new_folder: Callable[[], Path], shared: Path
) -> None:
    gone, living = new_folder(), new_folder()
    for folder in (gone, living):
        lock = create_held(f"{folder}.lock")
        if folder == gone:
            os.close(lock)

    new_folder()

    assert (gone.parent, gone.exists(), living.exists()) == (shared, False, True)
    os.close(lock)


def test_gc_deletes_what_the_head_does_not_have_unless_a_node_program_runs(
    new_folder: Callable[[], Path], shared: Path
) -> None:
    running = new_folder()
    lock = create_held(f"{running}.lock")
    for name, size in (("code/a", 10), ("code/b", 20), ("packs/c", 30)):
        path = shared / "objects" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))

    assert delete_content({"code/b"}) == 0
    os.close(lock)
    assert delete_content({"code/b"}) == 40

    left = [path for path in (shared / "objects").rglob("*") if path.is_file()]
    assert left == [shared / "objects/code/b"]


def test_two_actors_may_delete_the_same_folder_at_once(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = new_folder()
    os.close(create_held(f"{gone}.lock"))

    def other_actor(folder: str, *, ignore_errors: bool) -> None:
        Path(f"{folder}.lock").unlink(missing_ok=True)

    monkeypatch.setattr("shutil.rmtree", other_actor)

    assert new_folder().exists()


def test_a_link_in_the_place_of_the_shared_folder_is_not_followed(
    new_folder: Callable[[], Path], shared: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "work").mkdir(parents=True)
    elsewhere.chmod(0o700)
    (elsewhere / "work.lock").touch()
    shared.symlink_to(elsewhere)

    assert new_folder().parent not in (shared, elsewhere)
    assert (elsewhere / "work").exists()


def test_a_shared_folder_that_others_can_write_is_not_used(
    new_folder: Callable[[], Path], shared: Path
) -> None:
    shared.mkdir()
    shared.chmod(0o777)

    gone = new_folder()
    os.close(create_held(f"{gone}.lock"))

    assert gone.parent != shared
    assert new_folder().parent == gone.parent
    assert not gone.exists()
