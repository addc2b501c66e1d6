"""A declared environment against its base, with the place of each finding."""

from pathlib import Path

import pytest

from sgpu_decl.backends.databricks.bases import all_bases
from sgpu_decl.config.env import EnvironmentBlock
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.base_checks import check_base
from sgpu_decl.model.environment import Package

LINES = {"base": 3, "python": 4, "dependencies.0": 6, "dependencies.1": 7}
CUDA_13 = (Package("nvidia-cuda-runtime", "13.0.48"),)


def place(path: str) -> Place | None:
    return Place("run.yaml", LINES[path], 1) if path in LINES else None


def checked(
    folder: Path,
    *,
    packages: tuple[Package, ...] = (),
    python: str | None = None,
    severity: Severity = Severity.ERROR,
    **block: object,
) -> list[tuple[str, str, str]]:
    found = check_base(
        EnvironmentBlock.model_validate(block),
        place,
        folder=folder,
        python=python,
        packages=packages,
        severity=severity,
        bases=all_bases(),
    )
    return [(item.code, str(item.severity), str(item.place)) for item in found]


def test_without_a_base_nothing_is_said(tmp_path: Path) -> None:
    assert checked(tmp_path, dependencies=["torch==1"], python="2.7", packages=CUDA_13) == []


def test_an_unknown_base_is_an_error_at_its_place(tmp_path: Path) -> None:
    expected = [("unknown_base", "error", "run.yaml:3:1")]
    assert checked(tmp_path, base="gpu-44", severity=Severity.INFO) == expected


def test_dependencies_and_requirements_are_compared_with_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    only_older = "scipy<1; python_version < '3.12'"  # the base has 3.12, whatever runs sgpu
    (tmp_path / "r.txt").write_text(f"# more\npeft\nnumpy<2 --hash=sha256:0\n-e .\n{only_older}\n")
    assert checked(
        tmp_path,
        base="gpu-4",
        dependencies=["torch==2.7.1", "nvidia-cublas-cu13"],
        requirements="r.txt",
        python="3.12.3",
    ) == [("base_cuda", "warning", "run.yaml:7:1"), ("base_replaced", "warning", "r.txt:3:1")]


def test_a_requirements_file_is_found_as_whoever_resolves_it_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the home folder, or included by a line of `dependencies`."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/r.txt").write_text("numpy<2\n")
    found = checked(tmp_path / "project", base="gpu-4", requirements="~/r.txt")
    assert [code for code, _, _ in found] == ["base_replaced"]
    (tmp_path / "more.txt").write_text("\nnumpy<2\n")
    found = checked(tmp_path, base="gpu-4", dependencies=["-r more.txt"])
    assert found == [("base_replaced", "warning", "more.txt:2:1")]


def test_a_requirements_file_that_is_not_there_is_left_to_who_resolves_it(tmp_path: Path) -> None:
    assert checked(tmp_path, base="gpu-4", requirements="gone.txt") == []


def test_another_python_or_cuda_is_as_bad_as_the_backend_says(tmp_path: Path) -> None:
    for severity in Severity:
        assert checked(
            tmp_path, base="gpu-4", python="3.11.7", packages=CUDA_13, severity=severity
        ) == [
            ("base_python", str(severity), "run.yaml:4:1"),
            ("base_cuda", str(severity), "run.yaml:3:1"),
        ]
