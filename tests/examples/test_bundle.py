"""The bundle, by the program that the Databricks CLI starts, and in a workspace that runs here."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sgpu_decl.distribution import shipped_folder
from tests.bundles.cli_standin import CliStandin
from tests.bundles.test_deploy import launched
from tests.support import require

require("databricks.bundles")


@pytest.fixture
def bundle(
    example: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CliStandin:
    copied = example("bundle")
    for name, folder in copied.environ.items():
        monkeypatch.setenv(name, folder)
    return CliStandin(copied.folder, tmp_path / "io")


def test_it_fits_its_schema(bundle: CliStandin) -> None:
    schema = json.loads((shipped_folder("schemas") / "project.v1.schema.json").read_text())
    jsonschema.validate(yaml.safe_load((bundle.folder / "sgpu.yml").read_text()), schema)


def test_both_of_its_jobs_launch_the_run(bundle: CliStandin) -> None:
    jobs = bundle.jobs()
    assert jobs.keys() == {"nightly", "weekly"}
    for name in jobs:
        (task,) = [one for one in jobs[name]["tasks"] if "ai_runtime_task" in one]
        command = task["ai_runtime_task"]["deployments"][0]["command_path"]
        spec = bundle.folder / command.removeprefix(f"{bundle.file_path}/")
        assert json.loads(spec.with_name("spec.json").read_text())["entry"]["args"] == {"epochs": 3}


@pytest.mark.expensive
def test_it_is_deployed_and_runs(bundle: CliStandin, workspace: Any) -> None:
    from databricks.sdk import WorkspaceClient

    client = WorkspaceClient()
    user = str(client.current_user.me().user_name)
    known = replace(bundle, target="prod", user=user, apart=True)
    ids = known.deploy(client.api_client, known.jobs())
    assert launched(client, ids["nightly"]) == {"nightly": "SUCCESS"}
    assert launched(client, ids["weekly"]) == {"prepare": "SUCCESS", "train": "SUCCESS"}
    for name in ids:
        result = f"{known.file_path}/sgpu/runs"
        (lineage,) = client.workspace.list(result)
        (version,) = client.workspace.list(f"{lineage.path}/job.{name}")
        output = f"{version.path}/back/0/node_1/output/slope-1.json"
        found = json.loads(client.workspace.download(output).read())
        assert found == {"slope": 2.999997, "samples": 49}
