"""The jobs of a project in a bundle, by the program that the Databricks CLI starts."""

import gzip
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from databricks.bundles.core import Bundle, Severity
from databricks.bundles.jobs import Job

from sgpu_decl.bundles import load_resources
from sgpu_decl.bundles.bundle_program import sync_findings
from tests.bundles.cli_standin import CliStandin
from tests.support import check_golden

GOLDEN = Path(__file__).with_name("golden")


def write(bundle: CliStandin, name: str, old: str, new: str) -> None:
    path = bundle.folder / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def loaded(target: str = "dev", **variables: Any) -> Any:
    return load_resources(Bundle(target=target, variables=variables))


def errors(resources: Any) -> list[Any]:
    return [one for one in resources.diagnostics.items if one.severity is Severity.ERROR]


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_program_of_the_cli_takes_the_jobs_with_their_places(bundle: CliStandin) -> None:
    built = replace(bundle, apart=True).load()
    assert (built.code, built.diagnostics) == (0, []), built.stderr
    job = built.jobs["nightly"]
    golden = json.dumps(job, indent=1, sort_keys=True)
    for folder in bundle.folder.glob("sgpu/runs/*/*/*"):
        golden = golden.replace(folder.name, "DIGEST").replace(folder.parents[1].name, "LINEAGE")
    for archive in bundle.folder.glob("sgpu/objects/code/*"):
        code = "project" if b"prepare.py" in gzip.decompress(archive.read_bytes()) else "src"
        golden = golden.replace(archive.name, f"{code}.tar.gz")
    check_golden(GOLDEN / "nightly.json", golden + "\n")
    assert "sgpu_token" not in str(job), "it is not a job of ours"
    assert "pause_status" not in job["schedule"], "the bundle decides it"
    at = {
        path.removeprefix("resources.jobs.nightly"): place
        for path, place in built.locations.items()
    }
    assert at[""] == ("sgpu.yml", 16, 3)
    assert at[".tasks[1].depends_on"][:2] == ("sgpu.yml", 24)
    assert at[".schedule.quartz_cron_expression"][:2] == ("sgpu.yml", 18)
    assert built.jobs["etl"]["tasks"][1] == bundle.config()["resources"]["jobs"]["etl"]["tasks"][1]


def test_both_phases_and_the_deployed_paths_lead_to_files(bundle: CliStandin) -> None:
    jobs = replace(bundle, apart=True).jobs()
    (train,) = [one for one in jobs["nightly"]["tasks"] if one["task_key"] == "train"]
    for path in (
        train["ai_runtime_task"]["deployments"][0]["command_path"],
        train["ai_runtime_task"]["code_source_path"],
        jobs["nightly"]["tasks"][0]["spark_python_task"]["python_file"],
        jobs["etl"]["tasks"][1]["ai_runtime_task"]["deployments"][0]["command_path"],
    ):
        assert path.startswith(f"{bundle.file_path}/sgpu/")
        assert (bundle.folder / path.removeprefix(f"{bundle.file_path}/")).is_file()
    assert jobs["nightly"]["name"] == "nightly of me"


def test_the_same_files_give_the_same_bytes_wherever_they_lie(
    bundle: CliStandin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = {name: job.as_dict() for name, job in loaded().jobs.items()}
    there = files(bundle.folder / "sgpu")
    changed = {path: path.stat().st_mtime_ns for path in bundle.folder.rglob("*")}
    assert {name: job.as_dict() for name, job in loaded().jobs.items()} == first
    assert files(bundle.folder / "sgpu") == there
    assert {path: path.stat().st_mtime_ns for path in bundle.folder.rglob("*")} == changed, (
        "a deploy uploads what was changed"
    )
    other = tmp_path / "elsewhere"
    shutil.copytree(bundle.folder, other, ignore=shutil.ignore_patterns("sgpu"))
    monkeypatch.chdir(other)
    assert {name: job.as_dict() for name, job in loaded().jobs.items()} == first
    assert files(other / "sgpu") == there
    for name, content in there.items():
        assert str(bundle.folder).encode() not in content, name
        assert b"${workspace" not in content, name


def test_no_workspace_is_asked_and_no_heavy_library_loads(bundle: CliStandin) -> None:
    program = (
        "import socket, sys\n"
        "def refused(*_): raise AssertionError('a workspace was asked')\n"
        "socket.socket.connect = refused\n"
        "from databricks.bundles.core import Bundle\n"
        "from sgpu_decl.bundles import load_resources\n"
        "assert load_resources(Bundle(target='dev')).jobs\n"
        "print([name for name in ('databricks.sdk', 'mlflow', 'torch', 'ray', 'rich') "
        "if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=bundle.folder, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr


def test_the_target_and_the_variables_are_those_of_the_bundle(bundle: CliStandin) -> None:
    def lr(target: str, **variables: Any) -> Any:
        shutil.rmtree(bundle.folder / "sgpu", ignore_errors=True)
        assert errors(loaded(target, **variables)) == []
        (spec,) = bundle.folder.glob("sgpu/runs/*/*/*/spec.json")
        return json.loads(spec.read_text())["entry"]["args"]["lr"]

    assert lr("dev") == 1.0
    assert lr("dev", lr=0.1, of_the_team=[1, 2]) == 0.1
    with (bundle.folder / "sgpu.yml").open("a") as file:
        file.write("targets: {prod: {variables: {lr: 7.0}}}\n")
    assert lr("prod") == 7.0
    (error,) = errors(loaded("dev"))
    assert "`dev`" in error.summary


def test_a_paused_job_is_paused_and_a_fixed_one_is_not_renamed(bundle: CliStandin) -> None:
    write(bundle, "sgpu.yml", "    parameters:", "    paused: true\n    parameters:")
    job: Job = loaded().jobs["nightly"]
    assert job.as_dict()["schedule"]["pause_status"] == "PAUSED"
    assert job.as_dict()["lifecycle"] == {"prevent_destroy": True}
    with (bundle.folder / "sgpu.yml").open("a") as file:
        file.write("targets: {dev: {mode: development}}\n")
    assert loaded().jobs["nightly"].name == "nightly of ${workspace.current_user.short_name}"


def test_errors_of_the_project_come_with_their_places(bundle: CliStandin) -> None:
    write(bundle, "sgpu.yml", "gpus: 2", "gpu: 2")
    built = bundle.load()
    assert built.code == 1
    assert built.config.get("resources", {}).get("jobs", {}).keys() == {"etl"}
    shown = {one["summary"]: one for one in built.diagnostics}
    (wrong,) = [
        one for text, one in shown.items() if "gpu" in text and one["location"]["line"] == 6
    ]
    assert (wrong["severity"], wrong["location"]["file"]) == ("error", "sgpu.yml")
    assert "gpus" in wrong["detail"]
    assert "Traceback" not in str(built.diagnostics)
    assert not (bundle.folder / "sgpu").exists()


def test_a_mistake_in_the_code_and_a_warning_are_told(bundle: CliStandin) -> None:
    write(bundle, "src/train.py", "def main(lr)", "def main(rate)")
    found = [one for one in loaded().diagnostics.items if one.location]
    assert any("lr" in one.summary and one.location.file == "sgpu.yml" for one in found)
    write(bundle, "src/train.py", "def main(rate)", "def main(lr)")
    write(bundle, "sgpu.yml", "    backend: databricks",
          "    backend: {kind: databricks, staging: /Workspace/Shared/x}")  # fmt: skip
    (told,) = loaded().diagnostics.items
    assert (told.severity, told.path) == (Severity.WARNING, ("resources", "jobs", "nightly"))
    assert "`backend.staging` has no effect in a bundle" in told.summary


@pytest.mark.parametrize(
    ("old", "new", "summary", "hint"),
    [
        ("    backend: databricks\n", "", "has the backend `local`", "write `backend: databricks`"),
        ("    timeout: 1h\n", "    timeout: 1h\n    budget: team\n", "name of a budget policy",
         "write the id"),
        ("{run: train,", "{run: trian,", "trian", "train"),
        ("args: {lr: \"${var.lr}\"}", "args: {lr: \"${run.other.output}\"}", "other", ""),
    ],
)  # fmt: skip
def test_what_no_bundle_can_have_is_refused_at_its_place(
    bundle: CliStandin, old: str, new: str, summary: str, hint: str
) -> None:
    write(bundle, "sgpu.yml", old, new)
    resources = loaded()
    (error, *_) = errors(resources)
    assert summary in error.summary
    assert hint in (error.detail or "")
    assert error.location is not None
    assert error.location.file == "sgpu.yml"
    assert resources.jobs == {}


def test_a_budget_by_its_id_and_a_pool_are_taken(bundle: CliStandin) -> None:
    policy = "00000000-0000-0000-0000-00000000beef"
    write(bundle, "sgpu.yml", "    timeout: 1h\n",
          f"    timeout: 1h\n    budget: {policy}\n"
          "    pool: p1\n    priority: critical\n")  # fmt: skip
    write(bundle, "sgpu.yml", "    parameters:", f"    budget: {policy}\n    parameters:")
    resources = loaded()
    assert errors(resources) == []
    job = resources.jobs["nightly"].as_dict()
    assert job["budget_policy_id"] == policy
    (train,) = [one for one in job["tasks"] if one["task_key"] == "train"]
    assert train["ai_runtime_task"]["priority_class"] == "CRITICAL"
    compute = train["ai_runtime_task"]["deployments"][0]["compute"]
    assert compute["provisioned_capacity_id"] == "p1"


def test_no_project_is_said(bundle: CliStandin) -> None:
    (bundle.folder / "sgpu.yml").unlink()
    built = bundle.load()
    assert built.code == 1
    (error,) = built.diagnostics
    assert "there is no `sgpu.yml`" in error["summary"]
    assert error["detail"] == "put it beside `databricks.yml`"


def test_a_job_that_the_bundle_has_already_is_refused(bundle: CliStandin) -> None:
    write(bundle, "databricks.yml", "    etl:\n", "    nightly:\n")
    built = bundle.load()
    assert built.code == 1
    (error,) = built.diagnostics
    assert "the bundle has a job `nightly` already" in error["summary"]
    assert error["location"] == {"file": "sgpu.yml", "line": 16, "column": 3}
    assert error["path"] == "resources.jobs.nightly"


@pytest.mark.parametrize(
    ("included", "told"),
    [
        ([], 'add `sync: {include: ["sgpu/**"]}`'),
        (["part/sgpu/**"], "remove the paths that begin"),
        (["./sgpu/**/*", "other"], None),
        (["sgpu"], None),
    ],
)
def test_a_bundle_that_does_not_upload_the_folder_is_refused(
    included: list[str], told: str | None
) -> None:
    found = list(sync_findings({"sync": {"include": included, "paths": ["."]}}))
    assert [(one.hint or "")[: len(told or "")] for one in found] == ([told] if told else [])
    assert list(sync_findings({})) == [], "another program has no such thing"


def test_a_bundle_whose_folder_nothing_can_write_to_is_refused() -> None:
    config = {"sync": {"include": ["sgpu/**"]}, "experimental": {"immutable_folder": True}}
    (found,) = sync_findings(config)
    assert "write their results" in found.summary


def test_foreign_files_in_the_folder_are_left_alone(bundle: CliStandin) -> None:
    (bundle.folder / "sgpu").mkdir()
    (bundle.folder / "sgpu/__init__.py").write_text("mine = 1\n")
    (error,) = errors(loaded())
    assert "`__init__.py`" in error.summary
    assert error.detail == "move them to another folder"
    assert list(files(bundle.folder / "sgpu")) == ["__init__.py"]


def test_secrets_of_a_scope_travel_by_reference_and_others_are_refused(bundle: CliStandin) -> None:
    write(bundle, "sgpu.yml", "env: {base: gpu-6}",
          "env: {base: gpu-6, secrets: {HF_TOKEN: ml/hf}}")  # fmt: skip
    assert errors(loaded()) == []
    (sidecar,) = bundle.folder.glob("sgpu/runs/*/*/*/secret_env_vars.json")
    assert json.loads(sidecar.read_text()) == [
        {"name": "HF_TOKEN", "secret_scope": "ml", "secret_key": "hf"}
    ]
    write(bundle, "sgpu.yml", "HF_TOKEN: ml/hf", "HF_TOKEN: env:HF_TOKEN")
    (error,) = errors(loaded())
    assert "HF_TOKEN" in error.summary
    assert error.location.line == 13


def test_a_project_without_jobs_leaves_no_folder(bundle: CliStandin) -> None:
    text = (bundle.folder / "sgpu.yml").read_text()
    (bundle.folder / "sgpu.yml").write_text(text[: text.index("jobs:")])
    resources = loaded()
    assert (resources.jobs, resources.diagnostics.items) == ({}, ())
    assert not (bundle.folder / "sgpu").exists()


def test_tags_of_any_name_are_taken(bundle: CliStandin) -> None:
    write(bundle, "sgpu.yml", "    parameters:", '    tags: {"a.b[c": d}\n    parameters:')
    built = bundle.load()
    assert built.jobs["nightly"]["tags"] == {"a.b[c": "d"}
    assert not [path for path in built.locations if "a.b" in path]


def test_an_id_that_the_bundle_has_looked_up_is_taken(bundle: CliStandin) -> None:
    write(bundle, "sgpu.yml", "  lr: {default: 1.0}\n",
          "  lr: {default: 1.0}\n  ci: {lookup: {service_principal: ci}}\n")  # fmt: skip
    write(bundle, "sgpu.yml", "    parameters:",
          "    run_as: {service_principal: '${var.ci}'}\n    parameters:")  # fmt: skip
    (error,) = errors(loaded())
    assert "made without its workspace" in error.summary
    assert "a variable of the bundle with the same name" in error.detail
    principal = "1f3e0b52-7c1d-4a53-9a3e-5c2f1f0d8a11"
    job = loaded(ci=principal).jobs["nightly"].as_dict()
    assert job["run_as"] == {"service_principal_name": principal}
