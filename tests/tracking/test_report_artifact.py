"""The page about a run as an artifact of its MLflow run."""

import pytest

from tests.cli.conftest import Shell
from tests.cli.test_report import CODE, RUN
from tests.support import require

require("mlflow")
pytestmark = pytest.mark.mlflow


@pytest.mark.expensive
def test_the_page_becomes_an_artifact_of_the_mlflow_run(project: Shell) -> None:
    project.write("run.yaml", RUN.replace("mlflow: {enabled: false}", "report: true"))
    project.write("train.py", CODE)
    project.done("apply", "-y")
    (artifact,) = (project.folder / ".sgpu").rglob("sgpu-report.html")
    assert "<h1>train#1</h1>" in artifact.read_text()
    artifact.unlink()
    added = project.done("report", "train", "--upload").out
    assert "added sgpu-report.html to the MLflow run" in added
    assert artifact.is_file()
    project.write("run.yaml", RUN.replace("mlflow: {enabled: false}", "until: always"))
    project.done("apply", "-y")
    assert len(list((project.folder / ".sgpu").rglob("sgpu-report.html"))) == 1
