"""The answers of each version of Ray become nodes, and a field that is missing has its name."""

from contextlib import closing
from typing import Any

import pytest

from sgpu_decl.backends.ray.planning.cluster_nodes import ClusterState, read_cluster
from sgpu_decl.errors import BackendError
from sgpu_decl.model.gpu import GPUType
from tests.backends.ray.answers import answering, recorded


def state_of(answers: dict[str, Any]) -> ClusterState:
    with answering(answers) as server, closing(server.dashboard()) as dashboard:
        state = read_cluster(dashboard)
        assert len(server.requests) == 4
        assert server.connections == 1
    return state


@pytest.mark.parametrize(
    ("version", "kind"), [("2.60.0", GPUType.H100), ("2.49.1", GPUType.A10)]
)  # of the node, by its label and by its resource
def test_nodes_are_read_with_what_is_free(version: str, kind: GPUType) -> None:
    state = state_of(recorded(version))
    assert (state.ray, state.python, state.scales) == (version, "3.11.7", False)
    head = state.head
    (node,) = (node for node in state.nodes if node is not head)
    assert (head.total["GPU"], head.total["CPU"]) == (8.0, 3.0)
    assert (head.free["GPU"], head.free["CPU"]) == (5.0, 1.0)  # a placement group has the rest
    assert head.total["memory"] - head.free["memory"] == pytest.approx(1e9, rel=1e-4)
    # An actor in the placement group counts once, one beside it has a CPU and half of a resource.
    assert (node.free["GPU"], node.free["CPU"]) == (1.0, 2.0)
    assert (node.free["my thing"], node.free["ssd_fast"]) == (0.5, 2.0)
    assert (head.kind, node.kind) == (GPUType.H100, kind)
    assert head.memory > 0


def test_nodes_of_one_host_have_names_of_their_own() -> None:
    names = [node.name for node in state_of(recorded("2.60.0")).nodes]
    assert len(set(names)) == 2
    assert all(name.startswith("vm (") for name in names)


def test_a_node_that_is_dead_does_not_count() -> None:
    answers = recorded("2.60.0")
    answers["/api/v0/nodes"]["data"]["result"]["result"][1]["state"] = "DEAD"
    assert [node.is_head for node in state_of(answers).nodes] == [True]


def test_a_node_with_a_type_name_may_get_company() -> None:
    answers = recorded("2.60.0")
    answers["/nodes"]["data"]["summary"][0]["raylet"]["nodeTypeName"] = "gpu-group"
    assert state_of(answers).scales


@pytest.mark.parametrize(
    ("devices", "kind"),
    [
        ([("NVIDIA A100-SXM4-40GB", 40536), ("NVIDIA A100-SXM4-40GB", 40536)], GPUType.A100_40GB),
        ([("NVIDIA A100 80GB PCIe", 81920)], GPUType.A100_80GB),
        ([("NVIDIA RTX A6000", 49140)], GPUType.RTX_A6000),
        ([("NVIDIA A10", 23028), ("NVIDIA L4", 23034)], None),
        ([("Unheard-of 9000", 23034)], None),
        ([], None),
    ],
)
def test_the_type_is_that_of_the_devices_where_ray_tells_none(
    devices: list[tuple[str, int]], kind: GPUType | None
) -> None:
    answers = recorded("2.60.0")
    for row in answers["/api/v0/nodes"]["data"]["result"]["result"]:
        row["labels"].pop("ray.io/accelerator-type")
    for machine in answers["/nodes"]["data"]["summary"]:
        machine["gpus"] = [{"name": name, "memoryTotal": size} for name, size in devices]
    assert {node.kind for node in state_of(answers).nodes} == {kind}


def test_the_memory_of_devices_tells_the_types_of_one_name_apart() -> None:
    answers = recorded("2.60.0")
    for row in answers["/api/v0/nodes"]["data"]["result"]["result"]:
        row["labels"]["ray.io/accelerator-type"] = "A100"
    for machine in answers["/nodes"]["data"]["summary"]:
        machine["gpus"] = [{"name": "NVIDIA A100-SXM4-80GB", "memoryTotal": 81920}]
    assert {node.kind for node in state_of(answers).nodes} == {GPUType.A100_80GB}


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/v0/cluster_metadata", "data.rayVersion"),
        ("/api/v0/cluster_metadata", "data.pythonVersion"),
        ("/api/v0/nodes", "data.result.result"),
        ("/nodes", "data.summary"),
        ("/nodes", "data.nodeLogicalResources"),
    ],
)
def test_a_field_that_is_missing_is_named(path: str, field: str) -> None:
    answers = recorded("2.60.0")
    *folders, last = field.split(".")
    block = answers[path]
    for name in folders:
        block = block[name]
    del block[last]
    with pytest.raises(BackendError, match=f"`{path}` gives no `{field}`") as raised:
        state_of(answers)
    assert raised.value.code == "not_ray_dashboard"


@pytest.mark.parametrize("field", ["node_id", "state", "resources_total"])
def test_a_field_of_a_node_that_is_missing_is_named(field: str) -> None:
    answers = recorded("2.49.1")
    del answers["/api/v0/nodes"]["data"]["result"]["result"][0][field]
    with pytest.raises(BackendError, match=f"no `{field}`"):
        state_of(answers)
