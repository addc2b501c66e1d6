"""A node is prepared without showing secrets to what it starts."""

import json
import zipfile
from pathlib import Path

import pytest

from sgpu_decl.agent.node.agent_process import ARCHIVE
from sgpu_decl.agent.node.setup import SharedObjects, prepare
from sgpu_decl.agent.node.stop_request import StopRequest
from tests.backends.remote.conftest import PLATFORM

SPEC = {
    "output_dir": "output",
    "code_dir": "code",
    "secrets": {"MINE": "env:MINE"},
    "tracker": {"secrets": ["MLFLOW_TRACKING_TOKEN"]},
}
WRITES = "import json, os\nopen({path!r}, 'w').write(json.dumps(dict(os.environ)))\n"


def test_the_environment_is_made_by_a_process_that_has_no_secrets(
    tmp_path: Path, stopping: StopRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "of the run")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "of the tracker")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
    seen = tmp_path / "seen.json"
    with zipfile.ZipFile(tmp_path / ARCHIVE, "w") as archive:
        archive.writestr("__main__.py", WRITES.format(path=str(seen)))

    problem = prepare(
        SPEC, str(tmp_path), stopping, PLATFORM,
        code=None, environment="0" * 64, objects=SharedObjects(str(tmp_path)),
        back=str(tmp_path / "back"),
    )  # fmt: skip

    assert problem is None
    variables = json.loads(seen.read_text())
    assert variables["MLFLOW_TRACKING_USERNAME"] == "ann"
    assert not {"MINE", "MLFLOW_TRACKING_TOKEN"} & variables.keys()
