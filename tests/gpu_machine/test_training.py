"""The FSDP training of the examples, in bfloat16, on all devices of this machine."""

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.gpu_machine.conftest import values

pytestmark = [pytest.mark.gpu, pytest.mark.torch, pytest.mark.mlflow]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fsdp"


def test_fsdp_in_bfloat16_learns(sgpu: Shell, gpus: list[dict[str, str]]) -> None:
    for file in EXAMPLE.glob("*.py"):
        shutil.copy(file, sgpu.folder)
    shutil.copy(EXAMPLE / "run.yaml", sgpu.folder)
    words = ("type=GPU", f"gpus={len(gpus)}", "args.epochs=2", "args.dtype=bfloat16")
    sgpu.ran("apply", "-y", *[word for one in words for word in ("--set", one)])
    found = values(sgpu, "fsdp")
    assert [one["device"] for one in found] == [f"cuda:{at}" for at in range(len(gpus))]
    for one in found:
        assert one["loss"][-1] < one["loss"][0]
