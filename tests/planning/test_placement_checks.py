"""A plan says where the backend puts what it launches, and the choice forces nothing."""

from typing import Any

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.desired import Placement
from sgpu_decl.planning.capabilities import Capabilities
from sgpu_decl.planning.plan_json import saved_from_json, saved_text

REMOTE = {"databricks": Capabilities(fields=frozenset({"pool"}))}


def placement(words: str = "GPUs come on demand", **fields: Any) -> Placement:
    note = Diagnostic(code="pool", severity=Severity.INFO, summary=words)
    return Placement(**{"id": None, "note": note, **fields})


def wanting(world: Any, chosen: Placement, name: str = "train", **other: Any) -> Any:
    return world.want(name, backend="databricks", placement=chosen, **other)


def checks(world: Any) -> Any:
    return world.plan(capabilities=REMOTE).checks


def test_the_id_travels_with_the_launch(world: Any) -> None:
    plan = wanting(world, placement(id="p-1")).plan(capabilities=REMOTE)
    (change,) = plan.changes
    assert change.launch.inputs.placement == "p-1"
    assert '"pool":"p-1"' in saved_text(plan)
    back, _ = saved_from_json(saved_text(plan))
    assert back == plan


def test_a_note_points_at_the_field_that_decided(world: Any) -> None:
    places = {"pool": Place("run.yaml", 3, 7)}
    for field, place in (("pool", Place("run.yaml", 3, 7)), (None, None)):
        (check,) = checks(wanting(world, placement(field=field), places=places))
        assert (check.id, check.severity, check.address) == ("pool", Severity.INFO, None)
        assert (check.summary, check.place) == ("GPUs come on demand", place)


def test_one_placement_of_all_runs_is_said_once_and_others_name_their_run(world: Any) -> None:
    for name in ("a", "b", "c"):
        wanting(world, placement(), name)
    assert [check.address for check in checks(world)] == [None]
    wanting(world, placement("GPUs come from the pool `p-1`", id="p-1"), "d")
    assert [check.address for check in checks(world)] == [Address.run("a"), Address.run("d")]


def test_a_run_beside_local_ones_is_named(world: Any) -> None:
    world.want("here")
    (check,) = wanting(world, placement(), "there").plan(
        capabilities={**REMOTE, "local": Capabilities()}
    ).checks  # fmt: skip
    assert check.address == Address.run("there")


def test_more_launches_than_a_backend_stands_are_said_once(world: Any) -> None:
    beyond = Diagnostic(code="head_memory", severity=Severity.WARNING, summary="too many")
    for number, said in enumerate([[], [], ["too many"]]):
        wanting(world, placement(limit=2, beyond=beyond), f"run-{number}")
        summaries = [check.summary for check in checks(world)]
        assert sorted(summaries) == ["GPUs come on demand", *said]


def test_another_placement_forces_nothing(world: Any) -> None:
    world.had(AttemptState.SUCCEEDED)
    made = wanting(world, placement(id="p-2")).plan(capabilities=REMOTE)
    assert made.checks == ()
    assert not made.applyable
