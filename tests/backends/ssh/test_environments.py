"""Environments that are declared here, and made on the box from what its store lacks."""

import json
import os
import shutil
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.agent.system.locks import create_held
from sgpu_decl.backends.box.box_place import BoxPlace
from sgpu_decl.backends.box.box_uploads import BoxUploads
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.environments.environment_store import EnvironmentStore
from sgpu_decl.errors import BackendError
from sgpu_decl.model.step_progress import Quiet
from sgpu_decl.testing.contracts.backend_bench import BackendBench
from tests.content.conftest import pack_wheel
from tests.ssh_server import SshServer


def environment(folder: Path, word: str) -> Path:
    """Make one with a package that has the word; return its interpreter."""
    if not folder.exists():
        venv.create(folder, with_pip=False)
        (site,) = (folder / "lib").glob("python*/site-packages")
        (site / "mine.py").write_text(f"WORD = {word!r}\n")
        info = site / "mine-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
        (info / "RECORD").write_text("mine.py,,\nmine-1.0.dist-info/METADATA,,\n")
    return folder / "bin/python"


@pytest.mark.expensive
def test_ranks_on_a_box_have_the_packages_of_a_snapshot_or_those_that_are_declared(
    server: SshServer, bench: BackendBench, tmp_path: Path
) -> None:
    python = environment(tmp_path / "venv", "snapped")
    (bench.project / "train.py").write_text(
        "import sys, mine\ndef main(): return [mine.WORD, sys.prefix]\n"
    )
    bench.declare("main", env={"snapshot": True, "python": os.fspath(python)})

    run = bench.ran()
    assert run["state"] == "succeeded", (run, bench("logs", "hello"))

    ((_, (word, prefix)),) = bench.results()
    assert word == "snapped"
    assert prefix.startswith(f"{server.home}/sgpu/environments/")
    packs = sorted((server.home / "sgpu/packs").iterdir())
    (bench.project / "train.py").write_text("import mine\ndef main(): return mine.WORD * 2\n")
    assert bench.ran()["state"] == "succeeded"
    assert bench.results() == [(0, "snappedsnapped")]
    assert sorted((server.home / "sgpu/packs").iterdir()) == packs
    changes = bench.done("plan", "-o", "json").data["changes"]
    assert {change["action"] for change in changes} == {"no_op"}

    wheel = pack_wheel(tmp_path, "mine", "2.0", {"mine.py": "WORD = 'declared'\n"})
    bench.declare("main", env={"dependencies": [str(wheel)]})
    assert bench.ran()["state"] == "succeeded"
    assert bench.results() == [(0, "declareddeclared")]


@pytest.fixture
def made(box: Box, tmp_path: Path) -> Callable[[str], str]:
    """`made(word)` sends an environment with that word in it; returns its digest in hex."""
    store = EnvironmentStore(tmp_path / "store")

    def make(word: str) -> str:
        python = environment(tmp_path / f"venv-{word}", word)
        captured, _ = store.capture(str(python), Quiet())
        assert captured is not None
        BoxUploads(lambda: CodeStore(tmp_path / "codes"), lambda: store).tree(
            box, captured.digest, Quiet()
        )
        return captured.digest.removeprefix("sha256:")

    return make


def test_an_environment_for_another_processor_is_refused_before_it_is_sent(
    server: SshServer, tmp_path: Path
) -> None:
    python = server.home / "python"
    python.write_text(f'#!/bin/sh\nexec setarch linux32 {sys.executable} "$@"\n')
    python.chmod(0o755)
    other = Box(BoxPlace("box", "~/sgpu", str(python)))
    store = EnvironmentStore(tmp_path / "store")
    captured, _ = store.capture(str(environment(tmp_path / "venv", "mine")), Quiet())
    assert captured is not None
    if other.ask("python_of")["python"]["platform"] == f"linux-{os.uname().machine}":
        pytest.skip("this machine takes no other name for its processor")
    uploads = BoxUploads(lambda: CodeStore(tmp_path / "codes"), lambda: store)

    with pytest.raises(BackendError, match="does not fit `box`: it was made for linux-") as refused:
        uploads.tree(other, captured.digest, Quiet())

    assert refused.value.code == "environment_misfit"
    assert not (server.home / "sgpu/packs").exists()
    other.close()


def test_gc_deletes_environments_that_nothing_used_for_weeks_and_that_no_run_uses(
    server: SshServer, box: Box, made: Callable[[str], str]
) -> None:
    root = server.home / "sgpu"
    old, used, new = made("old"), made("used"), made("new")
    folder = root / "states/abc/runs/train/1"
    folder.mkdir(parents=True)
    spec = {"token": "t", "python": f"{root}/environments/{used}/bin/python"}
    (folder / "spec.json").write_text(json.dumps(spec))
    for file in (root / "packs").iterdir():
        if new not in file.name:
            os.utime(file, (0, 0))
    before = set((root / "environments/objects").glob("??/*"))

    lock = create_held(str(folder / "supervisor.lock"))
    assert box.ask("collect")["size"] > 0
    os.close(lock)

    trees = {path.name for path in (root / "environments").iterdir()}
    assert trees == {used, new, "objects", "lock"}
    words = {path.read_text() for path in before if path.exists() and path.suffix != ".x"}
    assert {"WORD = 'used'\n", "WORD = 'new'\n"} <= words
    assert "WORD = 'old'\n" not in words
    named = {path.stem for path in (root / "packs").iterdir() if path.suffix == ".manifest"}
    assert named == {used, new}
    assert made("old") == old
    assert (root / "environments" / old / "bin/python").exists()


@pytest.mark.parametrize("lost", ["packs", "environments/objects", "half of a pack"])
def test_an_environment_that_was_lost_on_the_box_is_sent_again(
    server: SshServer, made: Callable[[str], str], lost: str
) -> None:
    root = server.home / "sgpu"
    digest = made("lost")
    shutil.rmtree(root / "environments")
    if lost == "half of a pack":
        for pack in (root / "packs").glob("*.pack"):
            pack.write_bytes(pack.read_bytes()[: pack.stat().st_size // 2])
    else:
        shutil.rmtree(root / lost, ignore_errors=True)

    assert made("lost") == digest

    assert (root / "environments" / digest / "bin/python").exists()
