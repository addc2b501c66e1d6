"""A plan says where the backend puts what it launches, and the choice forces nothing."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.backend_kinds import Capabilities
from sgpu_decl.model.desired import Placement
from sgpu_decl.planner.plan_json import saved_from_json, saved_text

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
        assert (check.code, check.severity, check.address) == ("pool", Severity.INFO, "run.train")
        assert (check.summary, check.place) == ("GPUs come on demand", place)


def test_one_placement_of_all_runs_is_said_once_and_others_name_their_run(world: Any) -> None:
    for name in ("a", "b", "c"):
        wanting(world, placement(), name)
    assert [check.address for check in checks(world)] == [None]
    wanting(world, placement("GPUs come from the pool `p-1`", id="p-1"), "d")
    assert [check.address for check in checks(world)] == ["run.a", "run.d"]


def test_a_run_beside_local_ones_is_named(world: Any) -> None:
    world.want("here")
    (check,) = wanting(world, placement(), "there").plan(
        capabilities={**REMOTE, "local": Capabilities()}
    ).checks  # fmt: skip
    assert check.address == "run.there"


BEYOND = Diagnostic(code="head_memory", severity=Severity.WARNING, summary="too many")


@dataclass(frozen=True)
class Seats:
    """A room with that many places for launches, where each takes as many as its id says."""

    seats: int = 100
    name: str = "`there`"
    limit: int | None = None
    beyond: Diagnostic | None = BEYOND

    def fitting(self, launches: Mapping[str, int]) -> int:
        left, fitting = self.seats, 0
        for needs in sorted(int(identity) for identity in Counter(launches).elements()):
            fitting += needs <= left
            left -= needs if needs <= left else 0
        return fitting


def summaries(world: Any) -> list[tuple[str | None, str]]:
    found = [(check.address and check.address[4:], check.summary) for check in checks(world)]
    return sorted(found, key=lambda item: (item[0] or "", item[1]))


def test_runs_of_one_placement_count_their_room_together(world: Any) -> None:
    seats = Seats(seats=5)
    for name, said in (("a", ""), ("b", "; 2 of 2 runs fit at once"), ("c", "; 2 of 3 runs fit")):
        wanting(world, placement(id="2", room=seats), name)
        ((address, summary),) = summaries(world)
        assert summary.startswith(f"GPUs come on demand{said}")
        assert address == ("a" if name == "a" else None)


def test_runs_of_several_placements_that_share_a_room_count_together(world: Any) -> None:
    seats = Seats(seats=9)
    for name, needs in (("a", "8"), ("b", "6"), ("c", "7")):
        wanting(world, placement(f"{needs} seats", id=needs, room=seats), name)
    assert summaries(world) == [
        (None, "1 of 3 runs on `there` fit at once"),
        ("a", "8 seats"),
        ("b", "6 seats"),
        ("c", "7 seats"),
    ]
    wanting(world, placement("elsewhere", id="1", room=Seats(name="`here`")), "d")
    assert ("a", "1 of 3 runs on `there` fit at once") in summaries(world)
    assert ("d", "elsewhere") in summaries(world)


def test_runs_that_come_after_each_other_need_no_room_at_the_same_time(world: Any) -> None:
    chained = placement(id="2", room=Seats(seats=3))
    wanting(world, chained, "a")
    wanting(world, chained, "b", after=("a",))
    wanting(world, chained, "c", after=("b",))
    assert summaries(world) == [(None, "GPUs come on demand")]
    wanting(world, chained, "d", after=("b",))  # beside c
    assert summaries(world) == [(None, "GPUs come on demand; 1 of 2 runs fit at once")]


def test_more_launches_than_a_backend_stands_are_said_once(world: Any) -> None:
    for number, said in enumerate([[], [], ["too many"]]):
        chosen = placement(str(number % 2), id="0", room=Seats(limit=2))
        wanting(world, chosen, f"run-{number}")
        assert [item for _, item in summaries(world) if item == "too many"] == said


def test_another_placement_forces_nothing(world: Any) -> None:
    world.had(AttemptState.SUCCEEDED)
    made = wanting(world, placement(id="p-2")).plan(capabilities=REMOTE)
    assert made.checks == ()
    assert not made.applyable
