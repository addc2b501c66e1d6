"""The node agent as an archive: the same bytes everywhere, and a program by itself."""

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sgpu_decl.backends.archives import agent_zip
from sgpu_decl.errors import BackendError
from tests.backends.launches import launching_of, workspace_files_of


def test_it_is_the_same_in_every_process_and_known_by_its_content() -> None:
    digest, data = agent_zip()
    assert hashlib.sha256(data).hexdigest() == digest
    code = "from sgpu_decl.backends.archives import agent_zip; print(agent_zip()[0])"
    environment = {**os.environ, "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == digest


def test_it_holds_the_agent_alone() -> None:
    names = zipfile.ZipFile(io.BytesIO(agent_zip()[1])).namelist()
    assert "__main__.py" in names
    assert all(name.endswith(".py") for name in names)
    assert not any(name.startswith("sgpu_decl") for name in names)


def test_it_runs_without_anything_else(tmp_path: Path) -> None:
    archive = tmp_path / "agent.zip"
    archive.write_bytes(agent_zip()[1])
    for program in (["node"], ["hydrate"], ["--spec", "/nowhere/spec.json"]):
        done = subprocess.run(
            [sys.executable, "-I", "-S", archive, *program, "--help"], cwd="/",
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("reference", ["env:HF_TOKEN", "file:/token"])
def test_a_secret_of_this_machine_is_refused(tmp_path: Path, reference: str) -> None:
    given = {"gpus": 1, "type": "A10", "entrypoint": "main.py:main",
             "env": {"secrets": {"HF_TOKEN": reference}}}  # fmt: skip
    request = launching_of(token="t", spec=json.dumps(given), code_digest=None)
    with pytest.raises(BackendError, match="HF_TOKEN") as caught:
        workspace_files_of(
            request, root=tmp_path, nodes=1, scratch=tmp_path, folder="/w/runs/l/r/1"
        )
    assert "databricks:scope/key" in (caught.value.hint or "")
