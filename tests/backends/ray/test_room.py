"""The verdict of a plan about room is that of Ray itself, which is asked for placement groups.

Ray never places what a plan says that never fits. It calls that infeasible or waits for ever: 2.49
waits if each bundle would fit alone, and so does 2.60 with the strategy PACK.
"""

import json
import random
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.ray.api.credentials import Credentials
from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress
from sgpu_decl.backends.ray.planning.cluster_nodes import ClusterState, read_cluster
from sgpu_decl.backends.ray.planning.group_shape import Fit, fit_of, placement_of
from sgpu_decl.config.run import RunConfig
from sgpu_decl.testing.ray_cluster import RayCluster
from tests.support import until

pytestmark = pytest.mark.ray

HELD = [{"CPU": 2, "GPU": 3}, {"CPU": 1, "GPU": 1}]
# It holds some room, and says of each placement group that it is told what Ray makes of it.
PROGRAM = """
import json, sys, time
import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
bundles = json.loads(sys.argv[2])
held = placement_group(bundles, strategy="STRICT_SPREAD")
ray.get(held.ready())
print("held", flush=True)
rest = {kind: ray.cluster_resources()[kind] - sum(bundle[kind] for bundle in bundles)
        for kind in ("CPU", "GPU")}
for line in sys.stdin:
    # A node may not have freed yet what the group before this one had, and Ray would not know.
    while any(ray.available_resources().get(kind) != rest[kind] for kind in rest):
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


def state_of(cluster: RayCluster) -> ClusterState:
    with closing(Dashboard(DashboardAddress(url=cluster.url), Credentials())) as dashboard:
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


def test_ray_places_what_a_plan_says_that_fits(cluster: RayCluster, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    draw = random.Random(16)
    until(lambda: all(dict(node.free) == dict(node.total) for node in state_of(cluster).nodes))
    with subprocess.Popen(
        [cluster.python, str(program), cluster.address, json.dumps(HELD)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as ray:  # fmt: skip
        try:
            assert ray.stdout.readline() == "held\n"
            until(lambda: sorted(node.free["GPU"] for node in state_of(cluster).nodes) == [1, 3])
            state = state_of(cluster)
            said = []
            for _ in range(15):
                config = config_of(draw)
                fit = fit_of(config, state)
                ray.stdin.write(asked(config, state, fit) + "\n")
                ray.stdin.flush()
                answer = ray.stdout.readline().strip()
                own = verdict(config, fit)
                if own == "INFEASIBLE":
                    # Ray looks at bundles one by one in some cases, and waits for their sum.
                    answer = answer.replace("NO_RESOURCES", own)
                said.append(own)
                assert own == answer, (config, fit)
            assert {*said} == {"FINISHED", "NO_RESOURCES", "INFEASIBLE"}
        finally:
            ray.kill()


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
