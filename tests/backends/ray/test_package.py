"""The package of a launch."""

import io
import subprocess
import zipfile
from pathlib import Path

from sgpu_decl.backends.ray.cluster import exit_codes
from sgpu_decl.backends.ray.launching.package import ENTRYPOINT, job_package


def test_equal_launches_have_equal_packages() -> None:
    assert job_package({"launch.json": b"{}"}) == job_package({"launch.json": b"{}"})
    assert job_package({"launch.json": b"{}"})[0] != job_package({"launch.json": b"{}\n"})[0]


def test_it_holds_all_programs_of_the_cluster_and_little_else() -> None:
    _, content = job_package({"launch.json": b"{}"})

    names = set(zipfile.ZipFile(io.BytesIO(content)).namelist())

    programs = {path.name for path in Path(exit_codes.__file__).parent.glob("*.py")}
    assert names == {*programs, "agent.zip", "launch.json"}
    assert len(content) < 300_000


def test_its_files_are_for_their_owner_alone() -> None:
    _, content = job_package({"launch.json": b"{}"})

    members = zipfile.ZipFile(io.BytesIO(content)).infolist()

    assert {member.external_attr >> 16 for member in members} == {0o600}


def test_the_text_of_the_job_is_one_that_a_shell_can_read() -> None:
    subprocess.run(["sh", "-n", "-c", ENTRYPOINT], check=True)
