"""What a plan says of a box: its GPUs, who uses them, and what keeps runs from it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.testing.contracts.backend_bench import BackendBench, BackendCase
from tests.cli.conftest import nvml_library
from tests.ssh_server import SshServer

__all__ = ["nvml_library"]

H100 = "NVIDIA H100 80GB HBM3:85520809984"


@pytest.fixture
def planned(tmp_path: Path, nvml_library: Path) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """`planned(fields)` are the checks of the plan of a run on a box with two H100, the second of
    which somebody uses."""
    server = SshServer(
        tmp_path / "ssh", LD_LIBRARY_PATH=str(nvml_library), SGPU_TEST_GPUS=f"{H100};{H100}",
        SGPU_TEST_USERS=f"1:{os.getpid()}:1000000000",
    )  # fmt: skip
    one: dict[str, Any] = {"gpus": 1, "mlflow": {"enabled": False}}
    environ = {"PATH": f"{server.path}{os.pathsep}{os.environ['PATH']}"}
    case = BackendCase(fields=one, pair=one, many=one, secret=("", ""), missing="", environ=environ)
    bench = BackendBench(case, tmp_path)

    def checks(**fields: Any) -> list[dict[str, Any]]:
        block = {"kind": "ssh", "host": "box", "storage": "~/sgpu", **fields.pop("backend", {})}
        bench.declare("value", args={"gate": "."}, backend=block, **fields)
        return list(bench("plan", "-o", "json").data["checks"])

    yield checks
    server.close()


def codes(checks: list[dict[str, Any]]) -> list[str]:
    return [check["id"] for check in checks]


def test_a_run_that_fits_is_told_of_the_gpus_that_others_use(
    planned: Callable[..., list[dict[str, Any]]],
) -> None:
    (used,) = [one for one in planned(type="H100") if one["id"] == "gpus_in_use"]

    assert used["severity"] == "info"
    assert f"process {os.getpid()}" in used["summary"]


def test_a_run_waits_for_gpus_that_others_use(
    planned: Callable[..., list[dict[str, Any]]],
) -> None:
    (used,) = [one for one in planned(type="H100", gpus=2) if one["id"] == "gpus_in_use"]

    assert used["severity"] == "warning"
    assert "waits until enough GPUs are free" in used["summary"]


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"type": "H100", "gpus": 3}, "too_few_gpus", "the 2 H100 GPUs of `box`"),
        ({"type": "A10"}, "other_gpu", "`box` has no A10: it has 2 x NVIDIA H100"),
        ({"type": "CPU", "gpus": 5000}, "too_many_ranks", "processes on `box`"),
        ({"type": "CPU", "code": {"link": ["data"]}}, "unsupported_field", "another one do not"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(
    planned: Callable[..., list[dict[str, Any]]], fields: dict[str, Any], code: str, words: str
) -> None:
    (found,) = [one for one in planned(**fields) if one["id"] == code]

    assert found["severity"] == "error"
    assert words in found["summary"]


def test_a_host_that_does_not_answer_makes_a_plan_incomplete(
    planned: Callable[..., list[dict[str, Any]]],
) -> None:
    checks = planned(type="H100", backend={"host": "no-such-host.invalid"})

    (away,) = [one for one in checks if one["id"] == "host_unreachable"]
    assert away["severity"] == "warning"
    assert "no-such-host.invalid" in away["summary"]
