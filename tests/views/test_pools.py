"""How a plan shows where GPUs come from: pictures as golden files."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sgpu_decl.backends.databricks.planning.pools import choose_pool
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address
from sgpu_decl.model.backend_kinds import Capabilities
from sgpu_decl.model.desired import DesiredRun
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.plan import Plan
from sgpu_decl.model.state import State
from sgpu_decl.planner.plan_inputs import PlanInputs, PlanRequest
from sgpu_decl.planner.plan_json import plan_to_json
from sgpu_decl.planner.planner import plan
from sgpu_decl.views import plan_markdown, plan_text

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SHELL = {"DATABRICKS_USE_RESERVED_GPU_POOL": "false", "DATABRICKS_REMOTE_GPU_POOL_ID": "p-1"}


def wanted(name: str, pool: str | None, environ: dict[str, str], line: int) -> DesiredRun:
    spec: dict[str, Any] = {
        "gpus": 8,
        "type": "H100",
        "command": "x",
        **({"pool": pool} if pool else {}),
    }
    choice, _ = choose_pool(RunConfig.model_validate({"name": name, **spec}), environ)
    assert choice is not None
    return DesiredRun(
        address=Address.run(name),
        backend="databricks",
        owner="sgpu.yml",
        spec=Spec.of(spec),
        until="success",
        on_active="error",
        placement=choice.placement,
        places={"pool": Place("sgpu.yml", line, 11)} if pool else {},
    )


def a_plan() -> Plan:
    inputs = PlanInputs(
        desired=(
            wanted("default", None, {}, 1),
            wanted("named", "reserved-h100", SHELL, 7),
            wanted("on_demand", None, SHELL, 1),
            wanted("shell", None, {"REMOTE_GPU_POOL_ID": "p-2"}, 1),
        ),
        state=State(lineage="l", serial=1, resources={}, active=()),
        observed={},
        request=PlanRequest(project="/p", owner="sgpu.yml"),
        now=NOW,
        tool_version="0.1.0",
        config_digest="sha256:0",
        capabilities={"databricks": Capabilities(fields=frozenset({"pool"}))},
    )
    return plan(inputs)


def test_pools_are_as_drawn(golden: Callable[[str, str], None]) -> None:
    made = a_plan()
    assert made.applyable
    golden("plan_pools.txt", plan_text.render(made, now=NOW))
    golden("plan_pools.md", "".join(plan_markdown.render(made, now=NOW)))
    golden("plan_pools.json", json.dumps(plan_to_json(made)["checks"], indent=2) + "\n")
