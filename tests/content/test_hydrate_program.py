"""Trees made as backends make them: by the agent's zip, in processes that may be killed."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.content.hydration import whole
from sgpu_decl.content.python_match import this_python
from sgpu_decl.content.store.pack_writer import send
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.places.folder import FolderPlace
from tests.support import PATIENCE

PACKAGES = f"lib/python{this_python().minor}/site-packages"
FILES = {"one/__init__.py": "x = 1\n", "one/data.txt": "what it holds\n"}
HELD = f"{PACKAGES}/one/data.txt"


class Preparing:
    """`agent.zip hydrate` for one environment, as a process."""

    def __init__(
        self, archive: Path, made: Any, name: str = "tree", *, limit: int = -1, **options: object
    ) -> None:
        """`limit` is the size in bytes that no file may have."""
        manifest = made.store / f"{made.manifest.digest[7:]}.json"
        manifest.write_bytes(made.manifest.to_bytes())
        given = {
            "manifest": manifest,
            "digest": made.manifest.digest,
            "objects": made.objects,
            "tree": made.trees / name,
            "python": sys.executable,
            **options,
        }
        argv = [f"--{name}={value}" for name, value in given.items()]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", archive, "hydrate", *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )

    def end(self) -> tuple[int, list[dict[str, Any]], str]:
        """The exit code, what it said, and what it had no word for."""
        said, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, list(map(json.loads, said.splitlines())), errors


@pytest.fixture
def held(make_environment: Any) -> tuple[Any, Path]:
    """An environment one of whose objects is a pipe: who reads it waits for a writer."""
    made = make_environment(FILES)
    path = made.object(HELD)
    path.unlink()
    os.mkfifo(path)
    return made, path


def give_back(path: Path) -> None:
    """Let the object be a file again."""
    path.unlink()
    path.write_text(FILES["one/data.txt"])
    path.chmod(0o444)


def test_the_zip_makes_a_tree_and_says_how_far_it_is(
    make_environment: Any, agent_zip: Path
) -> None:
    made = make_environment(FILES)
    code, said, errors = Preparing(agent_zip, made).end()
    size = made.manifest.size
    assert (code, errors) == (0, "")
    assert said == [
        {"phase": "linking", "done": size, "total": size},
        {"tree": str(made.trees / "tree")},
    ]
    assert whole(said[-1]["tree"])
    assert Preparing(agent_zip, made).end() == (0, said[-1:], "")


def test_what_goes_wrong_is_said_in_one_word_and_a_sentence(
    make_environment: Any, agent_zip: Path
) -> None:
    made = make_environment(FILES)
    made.object(HELD).unlink()
    code, (_, said), errors = Preparing(agent_zip, made).end()
    assert (code, said["error"], errors) == (1, "damaged", "")
    assert said["objects"] == [made.object(HELD).name]
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"digest": "sha256:" + "0" * 64}, "manifest"),
        ({"manifest": "/nowhere"}, "manifest"),
        ({"python": "/nowhere/python"}, "system"),
    )
    for options, error in refused:
        code, (said,), errors = Preparing(agent_zip, made, **options).end()
        assert (code, said["error"], errors) == (1, error, "")
    other = make_environment(FILES, abi="cpython-31-x86_64-linux-gnu")
    code, (said,), errors = Preparing(agent_zip, other).end()
    assert (code, said["error"]) == (1, "mismatch")
    assert list(made.trees.iterdir()) == []


def test_a_killed_one_leaves_what_the_next_one_clears(held: Any, agent_zip: Path) -> None:
    made, path = held
    first = Preparing(agent_zip, made)
    writer = os.open(path, os.O_WRONLY)  # once a worker reads it
    first.process.kill()
    first.process.wait()
    left = sorted(item.name for item in made.trees.iterdir())
    assert len(left) == 2
    assert all(name.startswith(".making-") for name in left)
    os.close(writer)
    first.end()  # its workers are gone, too
    give_back(path)
    code, _, errors = Preparing(agent_zip, made, "other").end()
    assert (code, errors) == (0, "")
    assert [item.name for item in made.trees.iterdir()] == ["other"]


def test_of_two_at_once_one_wins_and_the_other_uses_it(held: Any, agent_zip: Path) -> None:
    made, path = held
    first = Preparing(agent_zip, made)
    writer = os.open(path, os.O_WRONLY)
    give_back(path)
    assert Preparing(agent_zip, made).end()[0] == 0
    tree = made.trees / "tree"
    winner = tree.stat().st_ino
    assert len(list(made.trees.iterdir())) == 3  # the tree, and the other's own place and lock
    os.write(writer, FILES["one/data.txt"].encode())
    os.close(writer)
    code, _, errors = first.end()
    assert (code, errors) == (0, "")
    assert tree.stat().st_ino == winner
    assert list(made.trees.iterdir()) == [tree]
    assert whole(str(tree))


def test_a_worker_that_dies_is_told_and_nothing_is_left(held: Any, agent_zip: Path) -> None:
    made, path = held
    first = Preparing(agent_zip, made)
    writer = os.open(path, os.O_WRONLY)
    children = Path(f"/proc/{first.process.pid}/task/{first.process.pid}/children").read_text()
    for child in children.split():
        os.kill(int(child), signal.SIGKILL)
    code, said, errors = first.end()
    os.close(writer)
    assert (code, said[-1]["error"], errors) == (1, "system", "")
    assert "ended with -9" in said[-1]["message"]
    assert list(made.trees.iterdir()) == []


def test_what_the_disk_does_not_take_is_told_and_nothing_is_left(
    make_environment: Any, agent_zip: Path
) -> None:
    made = make_environment(FILES)
    code, said, errors = Preparing(agent_zip, made, limit=100).end()
    assert (code, said[-1]["error"], errors) == (1, "system", "")
    assert "File too large" in said[-1]["message"]
    assert list(made.trees.iterdir()) == []
    code, _, errors = Preparing(agent_zip, made).end()
    assert (code, errors) == (0, "")


def test_objects_come_from_packs(make_environment: Any, agent_zip: Path, tmp_path: Path) -> None:
    made = make_environment(FILES)
    packs, objects = tmp_path / "packs", tmp_path / "worker/objects"
    code, (said,), errors = Preparing(agent_zip, made, packs=packs, objects=objects).end()
    assert (code, said["error"], errors) == (1, "packs", "")
    send(made.manifest, made.objects, FolderPlace(packs), str(packs), Quiet())
    code, lines, errors = Preparing(agent_zip, made, packs=packs, objects=objects).end()
    assert (code, errors) == (0, "")
    assert [line.get("phase") for line in lines] == ["unpacking", "linking", None]
    assert whole(lines[-1]["tree"])
