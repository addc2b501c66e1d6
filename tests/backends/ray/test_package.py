"""The package of a launch."""

import io
import os
import signal
import subprocess
import zipfile
from pathlib import Path

from sgpu_decl.backends.ray.cluster import job_verdict
from sgpu_decl.backends.ray.launching.jobs import ENTRYPOINT, job_package
from tests.support import until


def test_equal_launches_have_equal_packages() -> None:
    assert job_package({"launch.json": b"{}"}) == job_package({"launch.json": b"{}"})
    assert job_package({"launch.json": b"{}"})[0] != job_package({"launch.json": b"{}\n"})[0]


def test_it_holds_all_programs_of_the_cluster_and_little_else() -> None:
    _, content = job_package({"launch.json": b"{}"})

    names = set(zipfile.ZipFile(io.BytesIO(content)).namelist())

    programs = {path.name for path in Path(job_verdict.__file__).parent.glob("*.py")}
    assert names == {*programs, "agent.zip", "launch.json"}
    assert len(content) < 365_000


def test_its_files_are_for_their_owner_alone() -> None:
    _, content = job_package({"launch.json": b"{}"})

    members = zipfile.ZipFile(io.BytesIO(content)).infolist()

    assert {member.external_attr >> 16 for member in members} == {0o600}


def test_a_job_that_is_killed_before_its_driver_reads_anything_leaves_nothing(
    tmp_path: Path,
) -> None:
    """Its working folder is one that Ray knows of."""
    package, scratch, programs = (tmp_path / name for name in ("package", "scratch", "programs"))
    for folder in (package, scratch, programs):
        folder.mkdir()
    (package / "launch.json").write_text("{}")
    driver = programs / "python3"
    driver.write_text(f'#!/bin/sh\nls "$1" > {tmp_path}/started\nexec sleep 600\n')
    driver.chmod(0o700)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    job = subprocess.Popen(
        ["sh", "-c", ENTRYPOINT], cwd=package, env={"PATH": path, "TMPDIR": str(scratch)},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    started = tmp_path / "started"
    until(lambda: started.exists() and started.read_text() == "launch.json\n")

    job.kill()

    assert job.wait() == -signal.SIGKILL
    assert list(scratch.iterdir()) == []
    assert package.stat().st_mode & 0o077 == 0
