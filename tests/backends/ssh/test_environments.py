"""Environments that are declared here, and made on the box from what its store lacks."""

import os
from pathlib import Path

import pytest

from sgpu_decl.testing.contracts.backend_bench import BackendBench
from tests.ssh_server import SshServer


@pytest.mark.expensive
def test_ranks_on_a_box_have_the_packages_of_a_snapshot(
    server: SshServer, bench: BackendBench, tmp_path: Path
) -> None:
    import venv

    python = tmp_path / "venv/bin/python"
    venv.create(tmp_path / "venv", with_pip=False)
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    (site / "mine.py").write_text("WORD = 'snapped'\n")
    (site / "mine-1.0.dist-info").mkdir()
    (site / "mine-1.0.dist-info/METADATA").write_text("Name: mine\nVersion: 1.0\n")
    (site / "mine-1.0.dist-info/RECORD").write_text("mine.py,,\nmine-1.0.dist-info/METADATA,,\n")
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
