"""The jobs of a project as files of a bundle."""

import json
import os
import shutil

import yaml
from databricks.bundles.core import Bundle

from sgpu_decl.bundles import load_resources
from tests.bundles.cli_standin import CliStandin
from tests.bundles.test_loader import files, write
from tests.cli.conftest import Answer, Shell


def sgpu(bundle: CliStandin, *words: str) -> Answer:
    return Shell(bundle.folder, dict(os.environ)).here(*words)


def test_the_files_are_what_the_loader_gives(bundle: CliStandin) -> None:
    loaded = {
        name: job.as_dict() for name, job in load_resources(Bundle(target="dev")).jobs.items()
    }
    there = files(bundle.folder / "sgpu")
    shutil.rmtree(bundle.folder / "sgpu")
    done = sgpu(bundle, "bundle", "render")
    assert (done.code, done.out) == (0, "wrote sgpu/jobs.yml\n"), done.err
    rendered = files(bundle.folder / "sgpu")
    text = rendered.pop("jobs.yml").decode()
    assert yaml.safe_load(text) == {"resources": {"jobs": loaded}}
    assert rendered == there


def test_a_target_has_a_file_of_its_own(bundle: CliStandin) -> None:
    with (bundle.folder / "sgpu.yml").open("a") as file:
        file.write("targets: {prod: {variables: {lr: 7.0}}}\n")
    assert sgpu(bundle, "bundle", "render", "-t", "prod").code == 0
    block = yaml.safe_load((bundle.folder / "sgpu/jobs.prod.yml").read_text())
    assert list(block["targets"]["prod"]["resources"]["jobs"]) == ["nightly"]


def test_a_file_for_all_targets_beside_one_for_a_target_is_told(bundle: CliStandin) -> None:
    assert sgpu(bundle, "bundle", "render").err == ""
    with (bundle.folder / "sgpu.yml").open("a") as file:
        file.write("targets: {prod: {variables: {lr: 7.0}}}\n")
    told = sgpu(bundle, "bundle", "render", "-t", "prod")
    assert told.code == 0
    assert told.err.startswith(
        "warning: `sgpu/jobs.prod.yml` and `sgpu/jobs.yml` have the same jobs"
    )
    assert "`sgpu/jobs.prod.yml`" in sgpu(bundle, "bundle", "render").err


def test_check_writes_nothing_and_says_what_would_change(bundle: CliStandin) -> None:
    first = sgpu(bundle, "bundle", "render", "--check")
    assert (first.code, first.out) == (1, "would change sgpu/jobs.yml\n")
    assert not (bundle.folder / "sgpu").exists()
    assert sgpu(bundle, "bundle", "render").code == 0
    before = files(bundle.folder)
    same = sgpu(bundle, "bundle", "render", "--check", "-o", "json")
    assert same.code == 0
    assert json.loads(same.out)["data"]["changed"] is False
    write(bundle, "src/train.py", "hello", "bye")
    assert sgpu(bundle, "bundle", "render", "--check").code == 1
    write(bundle, "src/train.py", "bye", "hello")
    assert files(bundle.folder) == before


def test_a_checkout_with_the_jobs_alone_is_up_to_date(bundle: CliStandin) -> None:
    """What jobs launch is no part of the repository, and the jobs are no part of the code."""
    assert sgpu(bundle, "bundle", "render").code == 0
    shutil.rmtree(bundle.folder / "sgpu/runs")
    shutil.rmtree(bundle.folder / "sgpu/objects")
    (bundle.folder / "sgpu/index.json").unlink()
    assert sgpu(bundle, "bundle", "render", "--check").code == 0
    assert "up to date" in sgpu(bundle, "bundle", "render").err
    assert list(bundle.folder.glob("sgpu/runs/*/*/*/command.sh"))


def test_old_launches_stay_for_some_renders(bundle: CliStandin) -> None:
    def commands() -> int:
        return len(list(bundle.folder.glob("sgpu/runs/*/job.nightly/*/command.sh")))

    for epoch in range(5):
        write(bundle, "src/train.py", "hello", f"hello {epoch}")
        assert sgpu(bundle, "bundle", "render").code == 0
        write(bundle, "src/train.py", f"hello {epoch}", "hello")
        assert commands() == min(epoch + 1, 3)
    assert sgpu(bundle, "bundle", "render", "--keep", "1").code == 0
    assert commands() == 1


def test_mistakes_are_errors_of_the_command(bundle: CliStandin) -> None:
    (bundle.folder / "sgpu").mkdir()
    (bundle.folder / "sgpu/mine.txt").write_text("")
    refused = sgpu(bundle, "bundle", "render")
    assert refused.code == 1
    assert "`mine.txt`" in refused.err
    (bundle.folder / "sgpu/mine.txt").unlink()
    write(bundle, "sgpu.yml", "    backend: databricks\n", "")
    refused = sgpu(bundle, "bundle", "render")
    assert refused.code == 1
    assert "sgpu.yml:6" in refused.err
    assert "has the backend `local`" in refused.err


def test_what_a_plan_asks_the_workspace_for_has_no_place_in_a_bundle(bundle: CliStandin) -> None:
    found = "    tags: {who: '${user}', sql: '${var.sql}'}\n    backend: databricks\n"
    write(bundle, "sgpu.yml", "    backend: databricks\n", found)
    variables = "variables:\n  sql: {lookup: {warehouse: BI}}\n"
    write(bundle, "sgpu.yml", "variables:\n", variables)
    refused = sgpu(bundle, "bundle", "render")
    assert refused.code == 1
    assert "a bundle is made without its workspace" in refused.err
    assert "a bundle is the same for all" in refused.err
