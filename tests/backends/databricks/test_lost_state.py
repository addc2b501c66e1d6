"""A state that was lost stops an apply in production: all would be launched again."""

import shutil
from pathlib import Path

import pytest

from sgpu_decl.api import Location, Session
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from tests.backends.databricks.bench import DatabricksBench

PROJECT = """\
project: {name: vision}
runs:
  hello: {gpus: 1, type: A10, command: 'true', env: {base: gpu-6}}
defaults: {run: {backend: databricks}}
targets:
  prod: {mode: production}
  trial: {mode: production}
  dev: {mode: development}
"""


@pytest.fixture
def vision(bench: DatabricksBench) -> Path:
    (bench.project / "run.yaml").unlink()
    (bench.project / "sgpu.yml").write_text(PROJECT)
    return bench.project


def session(project: Path, target: str) -> Session:
    return Session.open(Location(file=project / "sgpu.yml", project=project, target=target))


def apply(project: Path, target: str = "prod") -> None:
    opened = session(project, target)
    opened.apply(opened.plan())
    opened.close()


def lost(project: Path, target: str = "prod") -> list[Diagnostic]:
    checks = session(project, target).plan().plan.checks
    return [check for check in checks if check.code == "state_lost"]


def test_launches_of_a_state_that_is_not_here_stop_an_apply(
    bench: DatabricksBench, vision: Path
) -> None:
    assert lost(vision) == []
    apply(vision)
    assert lost(vision) == []
    first = session(vision, "prod").plan().plan.lineage
    shutil.move(vision / ".sgpu/prod", vision.parent / "backup")
    (found,) = lost(vision)
    assert f"lineage `{first}`" in found.summary
    assert f"/runs/{first[:8]}` has launches of another state" in found.summary
    refused = session(vision, "prod").plan()
    assert not refused.plan.applyable
    assert lost(vision, "trial") == []  # another target has a state of its own
    assert lost(vision, "dev") == []
    shutil.move(vision.parent / "backup", vision / ".sgpu/prod")
    assert lost(vision) == []
    # It is gone for good: the file that the hint names is deleted.
    shutil.rmtree(vision / ".sgpu/prod")
    (mark,) = bench.staging.glob("runs/*/state.json")
    assert f"/runs/{first[:8]}/{mark.name}`" in (found.hint or "")
    mark.unlink()
    assert lost(vision) == []
    assert session(vision, "prod").plan().plan.applyable


def test_a_mark_of_another_project_or_another_version_says_nothing(
    bench: DatabricksBench, vision: Path
) -> None:
    apply(vision)
    other = vision.parent / "other"
    shutil.copytree(vision, other, ignore=shutil.ignore_patterns(".sgpu"))
    assert lost(other) == []
    shutil.rmtree(vision / ".sgpu/prod")
    (mark,) = bench.staging.glob("runs/*/state.json")
    for content in ("{", "[]", '{"v": 2}', mark.read_text().replace('"v":1', '"v":1,"x":1')):
        mark.write_text(content)
        assert lost(vision) == []
