"""What is declared on top of a base, against what the base has."""

import pytest

from sgpu_decl.backends.databricks.bases import base_named
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.base_conflicts import (
    check_packages,
    check_python,
    check_requirements,
)
from sgpu_decl.environments.package_lists.markers import marker_values
from sgpu_decl.environments.package_lists.requirements import RequirementLine
from sgpu_decl.model.environment import Environment, Package
from tests.support import some

AT = Place("run.yaml", 7, 11)


def base(name: str) -> Environment:
    found = some(base_named(name))
    return found.environment


def checked(text: str, name: str = "gpu-4") -> list[tuple[str, str]]:
    found = check_requirements(
        base(name), [RequirementLine(text=text, place=AT)], marker_values(None)
    )
    assert all(item.place == AT and item.severity is Severity.WARNING for item in found)
    return [(item.code, item.summary) for item in found]


@pytest.mark.parametrize(
    "text",
    [
        "torch",
        "torch>=2.6",
        "torch==2.7.1",
        "numpy~=2.1.0",
        "peft==0.17.1",
        "torch==2.13.0; sys_platform == 'win32'",
        "Flask",
        "-r more.txt",
        "./x.whl",
        "torch==2.7.1+cu126; python_version < '3'",
        "nvidia-nccl-cu12>=2.20",
        "pyspark==4.0.0+databricks.connect.17.0.1",
    ],
)
def test_what_the_base_satisfies_or_does_not_have_is_silent(text: str) -> None:
    assert checked(text) == []


def test_a_pin_that_excludes_the_version_of_the_base_replaces_it() -> None:
    assert checked("torch==2.13.0") == [
        ("base_replaced", "`torch==2.13.0` replaces torch 2.7.1 of `gpu-4`")
    ]
    assert checked("Jinja2>3.2")[0][0] == "base_replaced"
    assert checked("transformers<4.50") == []
    assert checked("transformers<4.50", "ai-4")[0][0] == "base_replaced"


def test_builds_for_another_cuda_are_named() -> None:
    assert checked("nvidia-cublas-cu13") == [
        ("base_cuda", "`nvidia-cublas-cu13` brings CUDA 13, and `gpu-4` has CUDA 12.6")
    ]
    codes = [code for code, _ in checked("torch==2.9.0+cu130")]
    assert codes == ["base_replaced", "base_cuda"]
    assert checked("torch==2.9.0+cu130", "gpu-6") == []
    assert checked("torch==2.9.0+cu129", "gpu-5") == []


def test_packages_of_a_snapshot_for_another_cuda() -> None:
    packages = [Package("torch", "2.13.0"), Package("nvidia-cuda-runtime", "13.0.48")]
    (found,) = check_packages(base("gpu-4"), packages, AT, severity=Severity.ERROR)
    assert (found.code, found.severity, found.place) == ("base_cuda", Severity.ERROR, AT)
    assert "the environment brings CUDA 13.0" in found.summary
    for name in ("gpu-5", "gpu-6"):
        assert check_packages(base(name), packages, AT, severity=Severity.ERROR) == ()
    cpu = [Package("torch", "2.13.0+cpu")]
    assert check_packages(base("gpu-4"), cpu, AT, severity=Severity.ERROR) == ()


@pytest.mark.parametrize(
    ("name", "python", "codes"),
    [
        ("gpu-4", "3.11.7", ["base_python"]),
        ("gpu-4", "3.12.9", []),
        ("gpu-4", "3.12", []),
        ("gpu-4", "3", []),
        ("gpu-4", None, []),
        ("gpu-6", "3.11", []),
    ],
)
def test_the_minor_version_of_python_must_be_that_of_the_base(
    name: str, python: str | None, codes: list[str]
) -> None:
    found = check_python(base(name), python, AT, severity=Severity.INFO)
    assert [item.code for item in found] == codes
    assert all(item.severity is Severity.INFO and item.hint for item in found)
