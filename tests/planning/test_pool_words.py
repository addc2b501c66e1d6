"""Where GPUs come from is said with the launch that it holds for, and forces nothing."""

from typing import Any

import pytest

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.pool import PoolChoice, PoolKind
from sgpu_decl.planning.capabilities import Capabilities
from sgpu_decl.planning.plan_json import saved_from_json, saved_text

NAMED, RESERVED, ON_DEMAND = PoolKind
VARIABLE = "DATABRICKS_USE_POOL"
DATABRICKS = {"databricks": Capabilities(fields=frozenset({"pool"}))}


def wanting(world: Any, choice: PoolChoice, name: str = "train", **other: Any) -> Any:
    return world.want(name, backend="databricks", pool=choice, **other)


def checks(world: Any) -> Any:
    return world.plan(capabilities=DATABRICKS).checks


@pytest.mark.parametrize(
    ("choice", "pool"),
    [
        (PoolChoice(kind=RESERVED, pool="r-1", decided_by=VARIABLE), "r-1"),
        (PoolChoice(kind=NAMED, pool="p-1", unused=("A",)), "p-1"),
        (PoolChoice(kind=ON_DEMAND, denied=True), None),
    ],
)
def test_what_was_chosen_travels_with_the_launch(
    world: Any, choice: PoolChoice, pool: str | None
) -> None:
    plan = wanting(world, choice).plan(capabilities=DATABRICKS)
    (change,) = plan.changes
    assert change.launch.inputs.pool == pool
    back, _ = saved_from_json(saved_text(plan))
    assert back == plan


@pytest.mark.parametrize(
    ("choice", "summary", "hint"),
    [
        (
            PoolChoice(kind=RESERVED),
            "GPUs come from a reserved pool if one is accessible, else on demand",
            None,
        ),
        (
            PoolChoice(kind=RESERVED, pool="r-1", decided_by=VARIABLE),
            "GPUs come from the reserved pool `r-1`, as `DATABRICKS_USE_POOL` asks",
            "it holds for this shell alone; `pool: reserved` is part of the run",
        ),
        (
            PoolChoice(kind=ON_DEMAND, denied=True),
            "GPUs come on demand, since no reserved pool is accessible",
            None,
        ),
        (
            PoolChoice(kind=ON_DEMAND, decided_by=VARIABLE),
            "GPUs come on demand, as `DATABRICKS_USE_POOL` asks",
            "it holds for this shell alone; `pool: on_demand` is part of the run",
        ),
        (
            PoolChoice(kind=NAMED, pool="p-1", decided_by="pool", unused=("A", "B")),
            "GPUs come from the pool `p-1`, as `pool` asks",
            "`A`, `B` say otherwise: not used",
        ),
    ],
)
def test_the_choice_and_what_decided_it_are_told(
    world: Any, choice: PoolChoice, summary: str, hint: str | None
) -> None:
    (check,) = checks(wanting(world, choice, places={"pool": Place("run.yaml", 3, 7)}))
    assert (check.id, check.severity) == ("pool", Severity.INFO)
    assert (check.summary, check.hint) == (summary, hint)
    assert check.address is None
    assert check.place == (Place("run.yaml", 3, 7) if choice.decided_by == "pool" else None)


def test_one_choice_for_all_is_told_once_and_others_with_their_run(world: Any) -> None:
    shared = PoolChoice(kind=RESERVED)
    for name in ("a", "b", "c"):
        wanting(world, shared, name)
    assert [check.address for check in checks(world)] == [None]
    wanting(world, PoolChoice(kind=ON_DEMAND, decided_by="pool"), "d")
    assert [check.address for check in checks(world)] == [Address.run("a"), Address.run("d")]


def test_a_run_beside_local_ones_is_named(world: Any) -> None:
    world.want("here")
    (check,) = wanting(world, PoolChoice(kind=RESERVED), "there").plan(
        capabilities={**DATABRICKS, "local": Capabilities()}
    ).checks  # fmt: skip
    assert check.address == Address.run("there")


def test_another_choice_forces_nothing(world: Any) -> None:
    world.had(AttemptState.SUCCEEDED)
    made = wanting(world, PoolChoice(kind=ON_DEMAND)).plan(capabilities=DATABRICKS)
    assert made.checks == ()
    assert not made.applyable


def test_a_field_of_a_pool_is_fine_where_the_backend_has_them(world: Any) -> None:
    spec = {"gpus": 2, "type": "A10", "entrypoint": "train.py", "pool": "p-1"}
    choice = PoolChoice(kind=NAMED, pool="p-1", decided_by="pool")
    (check,) = checks(wanting(world, choice, spec=spec))
    assert check.id == "pool"
