from sgpu_decl.cli.telling import Telling
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.event import ApplyEvent, Step


def told(*events: tuple[str, str], early: bool = False) -> list[str]:
    lines: list[str] = []
    telling = Telling({}, lines.append)
    for name, step in events:
        address = Address.run(name)
        telling.hear(ApplyEvent(step=Step(step), address=address, attempt=AttemptRef(address, 1)))
    if early:
        telling.release()
    return lines


def test_what_ends_first_waits_for_what_began_before_it() -> None:
    begun = [("a", "started"), ("b", "started"), ("c", "started")]
    assert told(*begun, ("c", "launched"), ("b", "launched")) == []
    assert told(*begun, ("c", "launched"), ("a", "failed"), ("b", "launched")) == [
        "a#1 could not be launched", "b#1 launched", "c#1 launched",
    ]  # fmt: skip


def test_the_lines_of_one_change_stay_together() -> None:
    assert told(
        ("a", "started"), ("b", "started"), ("b", "stopped"), ("b", "launched"), ("a", "launched")
    ) == ["a#1 launched", "b#1 asked to stop", "b#1 launched"]


def test_what_starts_nothing_is_told_at_once() -> None:
    assert told(("a", "adopted"), ("b", "destroyed")) == [
        "a#1 is running already: attached", "b#1 destroyed",
    ]  # fmt: skip


def test_nothing_is_lost_where_the_walk_ends_early() -> None:
    assert told(("a", "started"), ("b", "started"), ("b", "launched"), early=True) == [
        "b#1 launched"
    ]
