"""Launches of one apply without storage, side by side."""

import io
import json
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.ray.cluster.head_names import DEPOT_ID
from sgpu_decl.backends.ray.head.head_place import SMALL
from sgpu_decl.backends.ray.placement import RayPlacement, Strategy
from sgpu_decl.backends.ray.ray_backend import open_ray
from sgpu_decl.model.call import Call, Pickled
from sgpu_decl.model.step_progress import Quiet
from tests.backends.ray.emulated_head import EmulatedHead, emulated_head
from tests.backends.remote.conftest import Shared

PLACEMENT = RayPlacement(
    nodes=1, ranks_per_node=1, strategy=Strategy.PACK, bundle={"CPU": 1}, labels={}, scales=False
)


@pytest.fixture
def head(tmp_path: Path) -> Iterator[EmulatedHead]:
    with emulated_head(tmp_path / "logs") as running:
        yield running


def call_of(machine: Shared, head: EmulatedHead, number: int) -> LaunchRequest:
    """A call whose arguments are too large for the package of its job."""
    request = machine.request(
        "def main(): return {}\n", number, mlflow={"enabled": False},
        backend={"kind": "ray", "address": head.url},
    )  # fmt: skip
    inputs = replace(request.record.inputs, placement=PLACEMENT.id)
    arguments = Pickled(stream=bytes([number]) * (SMALL + number))
    call = Call(name="f", function=Pickled(stream=b"f"), inputs=arguments, python="3.11",
                cloudpickle=None, folder=machine.home)  # fmt: skip
    return replace(request, record=replace(request.record, inputs=inputs), call=call)


def test_each_launch_sends_its_own_files_and_leaves_none_here(
    head: EmulatedHead, tmp_path: Path
) -> None:
    machine = Shared(tmp_path / "here", tmp_path)
    requests = [call_of(machine, head, number) for number in range(1, 5)]
    backend = open_ray(machine.context())

    def start(request: LaunchRequest) -> str | None:
        backend.launcher.stage(request)
        return backend.launcher.launch(request)

    backend.launcher.prepare(requests, Quiet())
    with ThreadPoolExecutor(len(requests)) as pool:
        references = list(pool.map(start, requests))

    for request, reference in zip(requests, references, strict=True):
        folder = json.loads(reference or "")["folder"]
        job = head.jobs[request.record.token]
        assert job["metadata"]["sgpu.folder"] == folder
        package = job["runtime_env"]["working_dir"].removeprefix("gcs://")
        files = zipfile.ZipFile(io.BytesIO(head.packages[package]))
        assert json.loads(files.read("launch.json"))["token"] == request.record.token
        own = {name for name in files.namelist() if name.startswith("files/")}
        assert own == {
            f"files/{name}"
            for name in (
                "_air.py", "cluster.json", "func.pkl", "rank.zip", "spec.json", "submitted.json"
            )
        }  # fmt: skip
        assert request.call is not None
        sent = Path(f"{head.logs}{folder}", "inputs.pkl")
        assert sent.read_bytes() == request.call.inputs.stream
    assert sum(name.startswith(DEPOT_ID) for name in head.jobs) == 1
    assert list((tmp_path / "here/state/ray-packages").iterdir()) == []
    assert backend.close is not None
    backend.close()
