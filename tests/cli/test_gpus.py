"""Which GPUs a machine has, and what a run that asks for others is told.

NVML is read by its real package in its real way; the library that it loads is one of the test's
own, compiled here, which tells of GPUs that the machine does not have.
"""

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.cli.conftest import Shell
from tests.sampling import sampled

RUN = "name: a\ngpus: 1\ntype: GPU\ncommand: ['true']\nmlflow: {enabled: false}\n"
H100 = "NVIDIA H100 80GB HBM3:85520809984"
A100_40 = "NVIDIA A100-SXM4-40GB:42949672960"
A100_80 = "NVIDIA A100-SXM4-80GB:85899345920"
L4 = "NVIDIA L4:24152899584"
T4 = "Tesla T4:16106127360"
MIG = "NVIDIA A100-SXM4-80GB MIG 1g.10gb:10468982784"


def said(shell: Shell, *options: str, code: str) -> str:
    """The check of that code, its hint behind it."""
    shell.write("run.yaml", RUN)
    sets = [word for option in options for word in ("--set", option)]
    answer = shell("plan", "-o", "json", *sets).json
    checks = (answer.get("data") or answer["error"])["checks"]
    found = [check for check in checks if check["id"] == code]
    assert len(found) == 1, checks
    return f"{found[0]['severity']}: {found[0]['summary']} | {found[0]['hint']}"


def test_a_type_that_is_not_here_is_an_error_that_names_what_is(on: Callable[..., Shell]) -> None:
    machine = on(*[H100] * 8)
    assert said(machine, "type=A100", code="other_gpu") == (
        "error: this machine has no A100: it has 8 x NVIDIA H100 80GB HBM3 (80 GB) | "
        "use `type: H100`, `type: GPU` for whatever is there, or a target with another backend"
    )
    assert machine("apply", "-y", "--set", "type=A100").code == 1


@pytest.mark.parametrize("asked", sampled(["H100", "h100_80gb", "GPU_8xH100"], quick=1))
def test_any_count_goes_up_to_what_is_there(on: Callable[..., Shell], asked: str) -> None:
    machine, counts = on(*[H100] * 8), [1, 3, 8] if asked != "GPU_8xH100" else [8]
    machine.write("run.yaml", RUN)
    for count in counts:
        sets = ("--set", f"type={asked}", "--set", f"gpus={count}")
        assert machine("plan", *sets).code == 0
    assert said(machine, f"type={asked}", "gpus=16", code="too_few_gpus").startswith(
        "error: `gpus: 16` is more than the 8 H100 GPUs of this machine: 8 x NVIDIA H100 80GB"
    )


def test_gpu_is_whatever_is_there(on: Callable[..., Shell]) -> None:
    four = on(L4, L4, L4, L4)
    assert said(four, "gpus=4", code="gpus_here") == (
        "info: `type: GPU` is 4 x NVIDIA L4 (24 GB) here | None"
    )
    assert said(four, "gpus=8", code="too_few_gpus") == (
        "error: `gpus: 8` is more than the 4 GPUs of this machine: 4 x NVIDIA L4 (24 GB) | "
        "use `gpus: 4` here, or a target with another backend"
    )


def test_gpu_where_there_is_none(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    answer = sgpu("plan")
    assert answer.code == 1
    assert "`type: GPU` needs a GPU, and this machine has none" in answer.out + answer.err
    assert "`type: CPU`" in answer.out + answer.err


@pytest.mark.parametrize(
    ("asked", "gpus", "fits"),
    [
        ("a100-80gb", A100_80, True),
        ("a100-80gb", A100_40, False),
        ("A100", A100_40, True),
        ("h100", "NVIDIA H100 NVL:100485038080", True),
        ("rtx 4090", "NVIDIA GeForce RTX 4090:25757220864", True),
        ("rtx 4090", "NVIDIA GeForce RTX 4090 Laptop GPU:17171480576", False),
        ("L40", "NVIDIA L40S:48305799168", False),
    ],
)
def test_a_size_and_a_model_count_as_they_are_written(
    on: Callable[..., Shell], asked: str, gpus: str, *, fits: bool
) -> None:
    machine = on(gpus)
    machine.write("run.yaml", RUN)
    assert machine("plan", "--set", f"type={asked}").code == (0 if fits else 1)
    if not fits:
        assert gpus.partition(":")[0] in said(machine, f"type={asked}", code="other_gpu")


def test_ranks_get_devices_of_their_type_alone(on: Callable[..., Shell]) -> None:
    machine = on(T4, A100_80, T4, A100_80)
    machine.write(
        "run.yaml",
        RUN.replace("['true']", "'echo on $CUDA_VISIBLE_DEVICES, $CUDA_DEVICE_ORDER'"),
    )
    answer = machine("apply", "-y", "--set", "type=A100", "--set", "gpus=2")
    assert answer.code == 0, answer.err
    assert "on 1,3, PCI_BUS_ID" in answer.out + answer.err
    assert (
        "is more than the 2 A100 GPUs of this machine: 2 x Tesla T4 (16 GB), 2 x NVIDIA A100"
        in (said(machine, "type=A100", "gpus=3", code="too_few_gpus"))
    )


@pytest.mark.parametrize(
    ("chosen", "given"),
    [("3,1", "3,1"), ("GPU-00000002", "2"), ("MIG-00000004-aaaa", "MIG-00000004-aaaa")],
)
def test_cuda_visible_devices_is_honoured(
    on: Callable[..., Shell], chosen: str, given: str
) -> None:
    machine = on(L4, L4, L4, L4, MIG, CUDA_VISIBLE_DEVICES=chosen)
    machine.write("run.yaml", RUN.replace("['true']", "'echo on $CUDA_VISIBLE_DEVICES.'"))
    answer = machine("apply", "-y", "--set", f"gpus={given.count(',') + 1}")
    assert f"on {given}." in answer.out + answer.err
    assert "hides" in said(machine, "gpus=4", code="too_few_gpus")


def test_devices_that_are_hidden_are_said_to_be(on: Callable[..., Shell]) -> None:
    machine = on(L4, L4, CUDA_VISIBLE_DEVICES="")
    assert "and `CUDA_VISIBLE_DEVICES` hides the 2 of this machine" in (
        said(machine, code="no_gpu")
    )


def test_a_driver_that_does_not_work_says_so_itself(on: Callable[..., Shell]) -> None:
    found = said(on("18"), code="no_gpu")
    assert "none that works: its driver says `RM has detected an NVML/RM version" in found


CALL = """
from sgpu_decl import distributed
from sgpu_decl.compute import GPUType
from sgpu_decl.errors import InvalidInput

@distributed
def train():
    pass

print(train.plan())
for kind in ("A100", GPUType.A100, "L4"):
    try:
        print(train.with_overrides(gpus=1, gpu_type=kind).plan())
    except InvalidInput as error:
        print(error)
"""


def test_a_call_takes_whatever_is_there(on: Callable[..., Shell]) -> None:
    """No type is made up for a GPU without a known name, and one that is asked for counts."""
    machine = on("NVIDIA Something New:1000000000", L4)
    machine.write("train.py", CALL)
    machine.write("sgpu.yml", "functions: {mlflow: {enabled: false}}\n")
    answer = subprocess.run(
        [sys.executable, "train.py"],
        cwd=machine.folder, env=machine.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "gpus: 2" in answer.stdout
    assert 'type: "GPU"' in answer.stdout
    refused = "this machine has no A100: it has 1 x NVIDIA Something New (1 GB), 1 x NVIDIA L4"
    assert answer.stdout.count(refused) == 2
    assert 'type: "L4"' in answer.stdout


def test_the_gpus_of_a_machine_are_listed_by_type_with_what_is_free(
    on: Callable[..., Shell],
) -> None:
    listed = on(H100, H100, L4, "Unheard Of 9000:1")("gpus")
    assert listed.code == 0
    assert [re.split("  +", line) for line in listed.out.splitlines()] == [
        ["TYPE", "FREE", "GPUS OF A RUN", "WHERE"],
        ["H100", "2 of 2", "1 to 2", "this machine"],
        ["L4", "1 of 1", "1", "this machine"],
        ["Unheard Of 9000", "1 of 1", "1", "this machine"],
    ]
    few = on(H100, H100, CUDA_VISIBLE_DEVICES="1")("gpus", "-o", "json").json["data"]
    assert few == {
        "gpus": [
            {
                "type": "H100", "gpus": "1", "free": 1, "total": 1, "where": "this machine",
                "note": "`CUDA_VISIBLE_DEVICES` hides 1 more",
            }
        ],
        "unavailable": [],
    }  # fmt: skip


def test_where_there_are_no_gpus_the_list_says_so(on: Callable[..., Shell]) -> None:
    listed = on()("gpus")
    assert listed.code == 0
    assert listed.out == "there are no GPUs\n"
    assert "`type: CPU`" in listed.err


PROJECT = """\
project: {name: p}
runs:
  here: {gpus: 1, type: GPU, command: "true"}
  there: {gpus: 8, type: H100, command: "true", backend: databricks}
targets:
  away: {runs: {here: {backend: {kind: ray, address: "http://127.0.0.1:9"}}}}
"""


def test_each_place_of_a_projects_runs_is_listed_and_one_that_is_silent_is_named(
    on: Callable[..., Shell],
) -> None:
    machine = on(H100)
    machine.write("sgpu.yml", PROJECT)
    both = machine("gpus", "-o", "json").json["data"]["gpus"]
    assert [(one["type"], one["gpus"], one["free"], one["where"]) for one in both] == [
        ("H100", "1", 1, "this machine"),
        ("A10", "any number", None, "serverless GPU compute"),
        ("H100", "1, or a multiple of 8", None, "serverless GPU compute"),
        ("B300", "a multiple of 8", None, "serverless GPU compute"),
    ]
    away = machine("gpus", "-t", "away")
    assert away.code == 1
    assert "warning: " in away.err
    assert "127.0.0.1:9" in away.err
    assert "A10" in away.out
