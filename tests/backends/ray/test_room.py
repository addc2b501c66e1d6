"""The verdict of a plan about room is that of Ray itself, which is asked for placement groups.

Ray never places what a plan says that never fits. It calls that infeasible or waits for ever: 2.49
waits if each bundle would fit alone, and so does 2.60 with the strategy PACK.
"""

import json
import os
import random
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress
from sgpu_decl.backends.ray.api.dashboard_credentials import Credentials
from sgpu_decl.backends.ray.cluster.cluster_room import has_room
from sgpu_decl.backends.ray.planning.cluster_nodes import ClusterState, read_cluster
from sgpu_decl.backends.ray.planning.group_shape import Fit, fit_of
from sgpu_decl.backends.ray.planning.launch_placement import placement_of
from sgpu_decl.config.run import RunConfig
from sgpu_decl.testing.ray_cluster import RayCluster, ray_cluster
from tests.backends.ray.answers import answering
from tests.ray_versions import NEWEST_RAY
from tests.support import PATIENCE, until

pytestmark = pytest.mark.ray

HELD: list[dict[str, float]] = [{"CPU": 2, "GPU": 3}, {"CPU": 1, "GPU": 1}]
# It holds some room, and says of each placement group that it is told what Ray makes of it.
PROGRAM = """
import json, sys, time
import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
bundles = json.loads(sys.argv[2])
held = placement_group(bundles, strategy="STRICT_SPREAD")
ray.get(held.ready())
print(json.dumps(ray.nodes()), flush=True)
rest = {kind: amount - sum(bundle.get(kind, 0) for bundle in bundles)
        for kind, amount in ray.cluster_resources().items() if not kind.startswith("node:")}
for line in sys.stdin:
    # A node may not have freed yet what the group before this one had, and Ray would not know.
    while any(abs(ray.available_resources().get(kind, 0) - rest[kind]) > 1e-5 for kind in rest):
        time.sleep(0.01)
    group = placement_group(**json.loads(line))
    while True:
        state = placement_group_table(group)["stats"]["scheduling_state"]
        if state in ("FINISHED", "INFEASIBLE", "NO_RESOURCES"):
            break
        time.sleep(0.01)
    remove_placement_group(group)
    while placement_group_table(group)["state"] != "REMOVED":
        time.sleep(0.01)
    print(state, flush=True)
"""


Devices = Mapping[float, tuple[str, int]]
"""The name and the MiB of the GPUs of nodes, by their CPUs."""

NO_DEVICES: Devices = {}
ANSWERS = ("/api/v0/cluster_metadata", "/api/v0/nodes?detail=1", "/nodes?view=summary&nocache=1")


def state_of(cluster: RayCluster) -> ClusterState:
    with closing(Dashboard(DashboardAddress(url=cluster.url), Credentials())) as dashboard:
        return read_cluster(dashboard)


def state_with(cluster: RayCluster, devices: Devices) -> ClusterState:
    """What a cluster says, with the GPUs that this machine does not have."""
    said = {}
    for path in ANSWERS:
        with urlopen(f"{cluster.url}{path}", timeout=PATIENCE) as answer:
            said[path.partition("?")[0]] = json.load(answer)
    rows = said["/api/v0/nodes"]["data"]["result"]["result"]
    cpus = {row["node_id"]: row["resources_total"].get("CPU", 0) for row in rows}
    for machine in said["/nodes"]["data"]["summary"]:
        found = devices.get(cpus.get(machine["raylet"].get("nodeId"), 0))
        if found is not None:
            machine["gpus"] = [{"name": found[0], "memoryTotal": found[1]}]
    said["/api/version"] = {"session_name": "one"}
    with answering(said) as answers, closing(answers.dashboard()) as dashboard:
        return read_cluster(dashboard)


def config_of(draw: random.Random) -> RunConfig:
    groups, ranks = draw.randint(1, 4), draw.randint(1, 5)
    kind = draw.choice(["H100", "H100", "GPU", "CPU", "A100"])
    block: dict[str, Any] = {"kind": "ray", "ranks_per_node": ranks}
    block["strategy"] = draw.choice(["spread", "pack"])
    block["resources_per_rank"] = {"CPU": draw.choice([0.1, 0.5, 1, 2])}
    if draw.random() < 0.2:
        block["resources_per_rank"]["memory"] = draw.choice(["10MB", "100TB"])
    return RunConfig.model_validate(
        {"name": "a", "gpus": groups * ranks, "type": kind, "command": ["x"], "backend": block}
    )


def verdict(config: RunConfig, fit: Fit) -> str:
    if fit.now:
        return "FINISHED"
    return "NO_RESOURCES" if fit.in_all else "INFEASIBLE"


def asked(config: RunConfig, state: ClusterState, fit: Fit) -> str:
    """The placement group of a launch, as Ray takes it."""
    placement = placement_of(config, state, fit)
    strategy = {"spread": "STRICT_SPREAD", "pack": "PACK"}[placement.strategy]
    group: dict[str, Any] = {
        "bundles": [dict(placement.bundle)] * placement.nodes, "strategy": strategy,
    }  # fmt: skip
    if placement.labels:
        group["bundle_label_selector"] = [dict(placement.labels)] * placement.nodes
    return json.dumps(group)


def compare(
    cluster: RayCluster,
    folder: Path,
    held: list[dict[str, float]],
    configs: Iterable[RunConfig],
    devices: Devices = NO_DEVICES,
) -> list[str]:
    """Ask the plan and Ray about each run, while somebody holds these bundles; return what the plan
    says, with the type that the run names."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    until(lambda: all(dict(node.free) == dict(node.total) for node in state_of(cluster).nodes))
    before = free_gpus(cluster)
    with subprocess.Popen(
        [cluster.python, str(program), cluster.address, json.dumps(held)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as ray:  # fmt: skip
        try:
            assert ray.stdin is not None
            assert ray.stdout is not None
            nodes = json.loads(ray.stdout.readline())
            until(lambda: free_gpus(cluster) == before - sum(item["GPU"] for item in held))
            state = state_with(cluster, devices)
            said = []
            for config in configs:
                fit = fit_of(config, state)
                ray.stdin.write(asked(config, state, fit) + "\n")
                ray.stdin.flush()
                answer = ray.stdout.readline().strip()
                own = verdict(config, fit)
                if own == "INFEASIBLE":
                    # Ray looks at bundles one by one in some cases, and waits for their sum.
                    answer = answer.replace("NO_RESOURCES", own)
                said.append(f"{config.type.name} {own}")
                assert own == answer, (config, fit)
                placement = json.loads(placement_of(config, state, fit).id)
                assert has_room(placement, nodes) is bool(fit.in_all), (config, nodes)
            return said
        finally:
            ray.kill()


def free_gpus(cluster: RayCluster) -> float:
    return sum(node.free.get("GPU", 0.0) for node in state_of(cluster).nodes)


@pytest.mark.expensive
def test_ray_places_what_a_plan_says_that_fits(cluster: RayCluster, tmp_path: Path) -> None:
    draw = random.Random(16)

    said = compare(cluster, tmp_path, HELD, [config_of(draw) for _ in range(40)])

    assert {word.split()[1] for word in said} == {"FINISHED", "NO_RESOURCES", "INFEASIBLE"}


# Nodes beside the head, each of another shape. The type of one is told by a resource alone, that of
# one by its devices.
SHAPES = (
    ("--num-cpus", "4", "--num-gpus", "4", "--resources", '{"ssd": 3}',
     "--labels", "ray.io/accelerator-type=A100,zone=a"),
    ("--num-cpus", "6", "--num-gpus", "2", "--labels", "zone=a",
     "--resources", '{"accelerator_type:A10G": 1, "ssd": 1}'),
    ("--num-cpus", "5", "--num-gpus", "2", "--resources", '{"ssd": 2}', "--labels", "zone=b"),
)  # fmt: skip
# What the drivers of the head and of these nodes may say.
SAID: tuple[Devices, ...] = (
    {},
    {3: ("NVIDIA A100", 81920), 4: ("NVIDIA A100", 40960), 5: ("NVIDIA RTX A6000", 49140)},
    {3: ("NVIDIA A100", 81920), 4: ("NVIDIA A100", 81920), 5: ("Foo Mega 1", 8000)},
)  # fmt: skip


def mixed_config(draw: random.Random) -> RunConfig:
    groups, ranks = draw.choice([1, 1, 2, 3, 4]), draw.choice([1, 1, 2, 3, 4])
    kinds = ["A100", "A100_80GB", "A100_40GB", "A10", "RTX_A6000", "GPU", "GPU", "CPU", "L4"]
    block: dict[str, Any] = {"kind": "ray", "ranks_per_node": ranks}
    block["strategy"] = draw.choice(["spread", "pack"])
    resources = {"CPU": draw.choice([0.1, 0.3, 0.5, 1, 2])}
    if draw.random() < 0.3:
        resources["ssd"] = draw.choice([0.1, 0.25, 0.5, 1])
    if draw.random() < 0.3:
        block["labels"] = {"zone": draw.choice(["a", "b"])}
    block["resources_per_rank"] = resources
    kind = draw.choice(kinds)
    return RunConfig.model_validate(
        {"name": "a", "gpus": groups * ranks, "type": kind, "command": ["x"], "backend": block}
    )


@pytest.mark.expensive
@NEWEST_RAY
def test_nodes_of_many_shapes(ray_python: str, tmp_path: Path) -> None:
    draw = random.Random(64)
    folder = host_lock_folder("ports")
    with (
        ExitStack() as claims,
        ray_cluster(nodes=1, cpus=3, gpus=2, gpu_type="A100", python=ray_python) as cluster,
    ):
        for number, shape in enumerate(SHAPES, start=1):
            claimed = [claim_port(folder, os.getpid() * 16 + number) for _ in range(3)]
            for _, lock in claimed:
                claims.callback(os.close, lock)
            join(cluster, number, [port for port, _ in claimed], shape)

        said = []
        for devices in SAID:
            configs = [mixed_config(draw) for _ in range(60)]
            held: list[dict[str, float]] = [{"CPU": 2, "GPU": 3}, {"CPU": 4, "GPU": 1}]
            said += compare(cluster, tmp_path, held, configs, devices)

        known = {word.split()[0] for word in said if not word.endswith("INFEASIBLE")}
        assert known == {"A100", "A100_80GB", "A100_40GB", "A10", "RTX_A6000", "GPU", "CPU"}
        words = [word.split()[1] for word in said]
        assert min(words.count(word) for word in ("FINISHED", "NO_RESOURCES", "INFEASIBLE")) > 15


def join(cluster: RayCluster, number: int, ports: Sequence[int], shape: Sequence[str]) -> None:
    """Add a node to a cluster, which ends with it."""
    names = (
        "--dashboard-agent-listen-port",
        "--metrics-export-port",
        "--dashboard-agent-grpc-port",
    )
    own = [f"{name}={port}" for name, port in zip(names, ports, strict=True)]
    with (cluster.folder / f"{number}.log").open("wb") as log:
        node = subprocess.Popen(
            [cluster.python, "-m", "ray.scripts.scripts", "start", "--address", cluster.address,
             "--block", "--node-ip-address", cluster.address.partition(":")[0],
             "--object-store-memory", "100000000", "--temp-dir", str(cluster.folder / str(number)),
             "--disable-usage-stats", "--min-worker-port=0", "--max-worker-port=0", *own, *shape],
            env={**os.environ, **cluster.mark(number), "RAY_prestart_worker_first_driver": "0"},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    cluster.nodes.append(node)
    until(lambda: node.poll() is not None or len(state_of(cluster).nodes) > number)
    assert node.poll() is None, (cluster.folder / f"{number}.log").read_text()[-2000:]


def test_a_label_of_several_values_is_one_that_ray_knows(cluster: RayCluster) -> None:
    """`in(A,B)` is what a plan writes for nodes of one type with several names."""
    ids = sorted(node.id for node in state_of(cluster).nodes)
    program = (
        "import sys, ray\n"
        "from ray.util.placement_group import placement_group\n"
        "ray.init(address=sys.argv[1], log_to_driver=False, logging_level='error')\n"
        "selectors = [{'ray.io/node-id': sys.argv[2]}] * 2\n"
        "group = placement_group([{'CPU': 1}] * 2, 'STRICT_SPREAD',"
        " bundle_label_selector=selectors)\n"
        "print(group.wait(30))\n"
    )
    done = subprocess.run(
        [cluster.python, "-c", program, cluster.address, f"in({','.join(ids)})"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "True"
