"""Tests for a machine with NVIDIA GPUs: `make test-gpu`. Elsewhere they are skipped."""

import csv
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.cli.conftest import Shell, sgpu

__all__ = ["sgpu"]

PROGRAM = shutil.which("nvidia-smi")
RUN = """\
name: gpu
type: GPU
timeout: 5m
mlflow: {enabled: false}
entrypoint: train.py:main
"""


def asked(*fields: str) -> list[dict[str, str]]:
    """What `nvidia-smi` says of each GPU, in MiB, degrees Celsius and W."""
    assert PROGRAM is not None
    words = [PROGRAM, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    rows = csv.reader(said.splitlines(), skipinitialspace=True)
    return [dict(zip(fields, row, strict=True)) for row in rows]


def _why_not() -> str | None:
    if PROGRAM is None:
        return "this machine has no nvidia-smi"
    try:
        return None if asked("uuid") else "nvidia-smi knows no GPU"
    except (subprocess.SubprocessError, OSError) as error:
        return f"nvidia-smi fails: {error}"


WHY_NOT = _why_not()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "gpu" in item.keywords and WHY_NOT is not None:
            item.add_marker(pytest.mark.skip(reason=WHY_NOT))


@pytest.fixture(scope="session")
def gpus() -> list[dict[str, str]]:
    """The GPUs in the order of the PCI bus."""
    found = asked("index", "name", "uuid", "memory.total", "pci.bus_id")
    return sorted(found, key=lambda one: one["pci.bus_id"])


@pytest.fixture(scope="session", autouse=True)
def line_for_the_page(request: pytest.FixtureRequest) -> Iterator[None]:
    """At the end, the line for the table of docs/gpus.md."""
    failed = request.session.testsfailed
    yield
    if WHY_NOT is None:
        import torch

        devices = asked("name", "driver_version")
        names = sorted({one["name"] for one in devices})
        tests = request.session.testscollected
        failed = request.session.testsfailed - failed
        cells = (
            f"{len(devices)} x {', '.join(names)}", devices[0]["driver_version"],
            f"{torch.__version__}", f"{tests - failed} of {tests}", f"{datetime.now(UTC):%Y-%m-%d}",
        )  # fmt: skip
        print(f"\nfor docs/gpus.md: | {' | '.join(cells)} | YOU |")


def values(shell: Shell, run: str = "gpu") -> list[Any]:
    """What the ranks of a run returned, in their order."""
    data = shell.data("results", run)
    return [result["value"] for result in data["results"]]
