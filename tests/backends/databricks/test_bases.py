"""The data of the base environments, counted and spot-checked against the page that it is from."""

import subprocess
import sys

import pytest

from sgpu_decl.backends.databricks.bases import DatabricksBase, all_bases, base_named
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.base_environments import requirements_of, unknown_base
from sgpu_decl.environments.package_lists.packages import normalise, version_of
from sgpu_decl.errors import SgpuError


def base(name: str) -> DatabricksBase:
    found = base_named(name)
    assert found is not None
    return found


def test_every_version_has_a_default_and_an_ai_base() -> None:
    names = [item.name for item in all_bases()]
    assert names == ["gpu-4", "ai-4", "gpu-5", "ai-5", "gpu-6", "ai-6"]


@pytest.mark.parametrize(("name", "packages"), [("gpu-4", 259), ("ai-4", 388)])
def test_version_4_is_whole(name: str, packages: int) -> None:
    environment = base(name).environment
    assert environment.complete
    assert (
        len(environment.packages)
        == len({package.name for package in environment.packages})
        == packages
    )
    assert (environment.os, environment.python, environment.cuda) == (
        "Ubuntu 24.04.2 LTS",
        "3.12.3",
        "12.6",
    )
    assert base(name).facts["databricks_connect"] == "17.0.1"
    assert base(name).source.as_of == "2025-10-22"


@pytest.mark.parametrize(
    ("name", "package", "version"),
    [
        ("gpu-4", "annotated-types", "0.7.0"),  # the first row, the last, and some between
        ("gpu-4", "zstandard", "0.23.0"),
        ("gpu-4", "torch", "2.7.1"),
        ("gpu-4", "torchvision", "0.22.1"),
        ("gpu-4", "databricks.serverless_gpu", "0.5.3"),
        ("gpu-4", "databricks-connect", "17.0.4"),
        ("gpu-4", "nvidia-cuda-runtime-cu12", "12.6.77"),
        ("gpu-4", "mlflow-skinny", "2.22.0"),
        ("gpu-4", "pyspark", "4.0.0+databricks.connect.17.0.1"),
        ("gpu-4", "ray", None),
        ("ai-4", "absl-py", "2.3.1"),
        ("ai-4", "zstd", "1.5.5.1"),
        ("ai-4", "databricks.serverless_gpu", "0.5.6"),
        ("ai-4", "databricks-connect", "17.2.2"),
        ("ai-4", "transformers", "4.56.1"),
        ("ai-4", "flash_attn", "2.8.3"),
        ("ai-4", "umap-learn", "0.5.9.post2"),
        ("ai-4", "ray", "2.49.1"),
        ("ai-4", "xgboost", "3.0.4"),
        ("ai-5", "vllm", "0.13.0"),
    ],
)
def test_versions_are_those_of_the_source(name: str, package: str, version: str | None) -> None:
    assert version_of(base(name).environment.packages, normalise(package)) == version


def test_the_ai_base_4_holds_all_of_the_default_one() -> None:
    default, ai = (
        {package.name: package.version for package in base(name).environment.packages}
        for name in ("gpu-4", "ai-4")
    )
    assert default.keys() < ai.keys()
    differing = {name for name, version in default.items() if ai[name] != version}
    assert differing == {"databricks-connect", "databricks-serverless-gpu", "pyspark"}


def test_what_is_not_known_is_absent_and_said_so() -> None:
    for item in all_bases():
        assert item.source.url.startswith("https://")
        assert item.source.as_of
        if not item.environment.complete:
            assert any("may be there" in note for note in item.environment.notes)
    assert base("gpu-6").environment.python is None
    assert base("gpu-6").environment.packages == ()
    assert "torch" in base("gpu-5").environment.absent


def test_each_says_how_a_task_selects_it() -> None:
    chosen = {item.name: (item.environment_version, item.base_environment) for item in all_bases()}
    assert chosen["gpu-4"] == ("4", None)
    assert chosen["ai-5"] == (None, "workspace-base-environments/databricks_ai_v5")
    assert all(version is None or base is None for version, base in chosen.values())


def test_a_name_that_is_nearly_one_is_offered() -> None:
    place = Place("run.yaml", 4, 9)
    found = unknown_base("gpu4", place, all_bases())
    assert (found.code, found.place) == ("unknown_base", place)
    assert found.hint == "did you mean `gpu-4`?"
    assert "`ai-6`" in (unknown_base("ubuntu", None, all_bases()).hint or "")


def test_requirements_pin_all_but_what_no_index_has() -> None:
    text = requirements_of(base("ai-4"))
    pins = [line for line in text.splitlines() if not line.startswith("#")]
    left_out = [line for line in text.splitlines() if line.startswith("# left out: ")]
    assert len(pins) + len(left_out) == 388
    assert {line.split()[3] for line in left_out} == {
        "databricks.serverless_gpu",
        "pyspark",
        "parambench-train-comms",
        "dbus-python",
        "PyGObject",
        "unattended-upgrades",
    }
    assert {"torch==2.7.1", "databricks-connect==17.2.2", "flash_attn==2.8.3"} <= set(pins)
    assert "Python 3.12.3, CUDA 12.6" in text.splitlines()[0]


def test_requirements_of_a_base_that_is_known_in_part_are_refused() -> None:
    with pytest.raises(SgpuError) as caught:
        requirements_of(base("ai-5"))
    assert caught.value.code == "base_incomplete"


def test_loading_needs_no_other_library() -> None:
    probe = (
        "import sys; from sgpu_decl.backends.databricks.bases import all_bases; all_bases(); "
        "print(sorted({'pydantic', 'yaml', 'packaging', 'click'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
