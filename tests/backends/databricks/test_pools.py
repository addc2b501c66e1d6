"""Where GPUs come from: the field, else the variables of the environment, else the default."""

import pytest

from sgpu_decl.backends.databricks.planning.pools import choose_pool
from sgpu_decl.model.pool import PoolChoice, PoolKind

NAMED, RESERVED, ON_DEMAND = PoolKind
USE, OLD, OLDEST = "DATABRICKS_USE_RESERVED_GPU_POOL", "DATABRICKS_USE_POOL", "SGC_USE_POOL"
ID, OLD_ID = "DATABRICKS_REMOTE_GPU_POOL_ID", "REMOTE_GPU_POOL_ID"


def chosen(pool: str | None, environ: dict[str, str], **known: tuple[str, ...]) -> PoolChoice:
    choice, found = choose_pool(pool, environ, **known)
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
    choice, (found,) = choose_pool(None, {name: "maybe", ID: "p-1"})
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
