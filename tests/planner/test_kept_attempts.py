"""What gc keeps although its number and age let it go."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.jsonable import NO_FIELDS
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.state import Attempt
from sgpu_decl.planner.kept_attempts import UNKNOWN, GcRule, kept, surplus

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ALL = GcRule(keep_last=0)
S, F, L, R = (
    AttemptState.SUCCEEDED,
    AttemptState.FAILED,
    AttemptState.LOST,
    AttemptState.RUNNING,
)


def history(*states: AttemptState) -> list[Attempt]:
    """Attempts of `train`, the last one a second old and each one before a day older."""
    return [
        Attempt(
            ref=AttemptRef(Address.run("train"), number),
            token=f"train-{number}",
            backend="local",
            inputs=LaunchInputs(spec=NO_FIELDS, fingerprint="f", code_digest=None),
            state=state,
            created_at=NOW - timedelta(days=len(states) - number, seconds=1),
        )
        for number, state in enumerate(states, 1)
    ]


def freed(
    attempts: Sequence[Attempt],
    rule: GcRule = ALL,
    *,
    outputs: Mapping[int, str] | None = None,
    read: Sequence[AttemptRef] = (),
) -> list[int]:
    """The numbers of the attempts that go."""
    places = {
        one.ref: (outputs or {}).get(one.ref.number) for one in attempts if not one.state.active
    }
    stays = kept(attempts, rule, read=read, outputs=places)
    return [one.ref.number for one in surplus(attempts, rule, NOW) if one.ref not in stays]


def train(number: int) -> AttemptRef:
    return AttemptRef(Address.run("train"), number)


@pytest.mark.parametrize(
    ("states", "outputs", "goes"),
    [
        ((F, F, F, F), {}, [1, 2, 3, 4]),
        ((F, F, F, F), {1: "here"}, [2, 3, 4]),  # the only checkpoint
        ((F, F, F, F), {1: "here", 3: "here"}, [1, 2, 4]),
        ((S, F, S, F), {}, [1, 2, 4]),  # the newest success
        ((S, F, L, F), {2: "here"}, [3, 4]),
        ((F, F, F, F), {1: "a bucket", 2: "here", 4: "here"}, [2, 3]),  # each place has its own
        ((F, F, F, F), {1: "here", 2: UNKNOWN, 3: UNKNOWN}, [4]),  # in doubt, nothing goes
        ((F, F, F, R), {1: "here", 2: "here"}, [1, 3]),
        # 3 goes on from 2 and may read it still, though 4 left something since
        ((F, F, R, F), {1: "here", 2: "here", 4: "here"}, [1]),
    ],
)
def test_the_newest_output_and_the_newest_success_stay(
    states: Sequence[AttemptState], outputs: Mapping[int, str], goes: list[int]
) -> None:
    assert freed(history(*states), outputs=outputs) == goes


def test_numbers_and_ages_let_go_and_what_is_needed_stays_all_the_same() -> None:
    attempts, outputs = history(F, F, F, F, F), {1: "here"}
    assert freed(attempts, GcRule(), outputs=outputs) == [2]
    assert freed(attempts, GcRule(keep_last=1), outputs=outputs) == [2, 3, 4]
    assert freed(attempts, GcRule(older_than=2 * 86400.0), outputs=outputs) == [2, 3]
    assert freed(attempts, GcRule(keep_last=4, older_than=0.0), outputs=outputs) == []
    assert freed(attempts, GcRule(keep_last=0, everything=True), outputs=outputs) == [1, 2, 3, 4, 5]


def test_what_a_launch_names_stays_also_under_its_earlier_name() -> None:
    attempts = history(S, S, S)
    assert freed(attempts, read=[train(1)]) == [2]
    renamed = [replace(one, formerly=(Address.run("first"),)) for one in attempts]
    assert freed(renamed, read=[AttemptRef(Address.run("first"), 2)]) == [1]
    assert freed(renamed, read=[AttemptRef(Address.run("other"), 1)]) == [1, 2]


@given(
    states=st.lists(st.sampled_from([S, F, L, R]), max_size=8),
    outputs=st.dictionaries(st.integers(1, 8), st.sampled_from(["here", "there"]), max_size=8),
    newest=st.integers(0, 4),
    age=st.none() | st.integers(0, 9),
)
def test_a_gc_changes_nothing_of_what_later_launches_find(
    states: list[AttemptState], outputs: dict[int, str], newest: int, age: int | None
) -> None:
    attempts = history(*states)
    left = {
        one.ref.number: place
        for one in attempts
        if not one.state.active and (place := outputs.get(one.ref.number))
    }
    rule = GcRule(keep_last=newest, older_than=None if age is None else age * 86400.0)

    gone = freed(attempts, rule, outputs=left)

    def found(below: int, place: str, without: Sequence[int] = ()) -> int:
        """What an attempt of that number finds in a place."""
        there = [n for n, at in left.items() if n < below and at == place and n not in without]
        return max(there, default=0)

    starts = [len(states) + 1, *(one.ref.number for one in attempts if one.state.active)]
    for start in starts:
        for place in ("here", "there"):
            assert found(start, place) == found(start, place, gone)
    successes = [one.ref.number for one in attempts if one.state is S]
    assert max(successes, default=0) not in gone
