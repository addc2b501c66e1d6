"""Where GPUs come from: the field, else the variables of the environment, else the default."""

import pytest

from sgpu_decl.backends.databricks.planning.pools import PoolChoice, PoolKind, choose_pool
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Severity

NAMED, RESERVED, ON_DEMAND = PoolKind
USE, OLD, OLDEST = "DATABRICKS_USE_RESERVED_GPU_POOL", "DATABRICKS_USE_POOL", "SGC_USE_POOL"
ID, OLD_ID = "DATABRICKS_REMOTE_GPU_POOL_ID", "REMOTE_GPU_POOL_ID"


def run(pool: str | None) -> RunConfig:
    fields = {"name": "a", "gpus": 1, "type": "A10", "command": "x", "pool": pool}
    return RunConfig.model_validate(fields)


def chosen(pool: str | None, environ: dict[str, str], **known: tuple[str, ...]) -> PoolChoice:
    choice, found = choose_pool(run(pool), environ, **known)
    assert found == ()
    assert choice is not None
    return choice


@pytest.mark.parametrize(
    ("pool", "environ", "expected"),
    [
        (None, {}, (RESERVED, None, None, ())),
        (None, {USE: "true"}, (RESERVED, None, USE, ())),
        (None, {USE: "False"}, (ON_DEMAND, None, USE, ())),
        (None, {OLD: "0"}, (ON_DEMAND, None, OLD, ())),
        (None, {OLDEST: "no"}, (ON_DEMAND, None, OLDEST, ())),
        (None, {USE: "", OLDEST: " off "}, (ON_DEMAND, None, OLDEST, ())),
        (None, {USE: "1", OLDEST: "0"}, (RESERVED, None, USE, (OLDEST,))),
        (None, {USE: "0", OLD: "false", OLDEST: "maybe"}, (ON_DEMAND, None, USE, (OLDEST,))),
        (None, {ID: "p-1"}, (NAMED, "p-1", ID, ())),
        (None, {OLD_ID: " p-2 "}, (NAMED, "p-2", OLD_ID, ())),
        (None, {ID: "p-1", OLD_ID: "p-2", USE: "on"}, (NAMED, "p-1", ID, (OLD_ID,))),
        (None, {ID: "p-1", OLD_ID: "p-1"}, (NAMED, "p-1", ID, ())),
        (None, {ID: "p-1", USE: "false"}, (ON_DEMAND, None, USE, (ID,))),
        ("p-3", {}, (NAMED, "p-3", "pool", ())),
        ("p-3", {ID: "p-1", USE: "maybe"}, (NAMED, "p-3", "pool", (USE, ID))),
        ("on_demand", {ID: "p-1"}, (ON_DEMAND, None, "pool", (ID,))),
        ("On-Demand", {}, (ON_DEMAND, None, "pool", ())),
        ("reserved", {OLDEST: "false"}, (RESERVED, None, "pool", (OLDEST,))),
    ],
)
def test_the_first_that_speaks_decides(
    pool: str | None, environ: dict[str, str], expected: tuple[object, ...]
) -> None:
    choice = chosen(pool, environ)
    assert (choice.kind, choice.pool, choice.decided_by, choice.unused) == expected
    assert not choice.denied


@pytest.mark.parametrize("name", [USE, OLD, OLDEST])
def test_a_flag_that_is_none_is_told_by_its_name(name: str) -> None:
    choice, (found,) = choose_pool(run(None), {name: "maybe", ID: "p-1"})
    assert choice is None
    assert found.code == "bad_pool_variable"
    assert f"`{name}` must be true or false, not `maybe`" in found.summary
    assert "`pool`" in (found.hint or "")


def test_what_is_accessible_settles_a_reserved_choice() -> None:
    some = chosen(None, {USE: "true"}, accessible=("r-1", "r-2"))
    assert (some.kind, some.pool, some.decided_by) == (RESERVED, "r-1", USE)
    none = chosen("reserved", {}, accessible=())
    assert (none.kind, none.pool, none.denied) == (ON_DEMAND, None, True)
    for kept in ("p-1", "on_demand"):
        assert chosen(kept, {}, accessible=("r-1",)) == chosen(kept, {})


@pytest.mark.parametrize(
    ("choice", "summary", "hint"),
    [
        (
            PoolChoice(kind=RESERVED),
            "GPUs come from a reserved pool if one is accessible, else on demand",
            None,
        ),
        (
            PoolChoice(kind=RESERVED, pool="r-1", decided_by=OLD),
            "GPUs come from the reserved pool `r-1`, as `DATABRICKS_USE_POOL` asks",
            "it holds for this shell alone; `pool: reserved` is part of the run",
        ),
        (
            PoolChoice(kind=ON_DEMAND, denied=True),
            "GPUs come on demand, since no reserved pool is accessible",
            None,
        ),
        (
            PoolChoice(kind=ON_DEMAND, decided_by=OLD),
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
def test_a_plan_says_where_gpus_come_from_and_what_decided(
    choice: PoolChoice, summary: str, hint: str | None
) -> None:
    placement = choice.placement
    assert (placement.note.code, placement.note.severity) == ("pool", Severity.INFO)
    assert (placement.note.summary, placement.note.hint) == (summary, hint)
    assert (placement.id, placement.field) == (
        choice.pool,
        "pool" if choice.decided_by == "pool" else None,
    )
