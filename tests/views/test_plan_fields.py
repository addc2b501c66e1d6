"""Laws of cutting: what differs is seen, and nothing is wider than asked for."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from sgpu_decl.model.plan import FieldChange, FieldEffect
from sgpu_decl.views.plan_fields import changed_lines, sides
from sgpu_decl.views.terminal import columns
from tests.support import some

TEXT = st.text(st.sampled_from("ab\u5b57\u0301\n \x1b"), max_size=60)
ROOMS = st.integers(30, 60)


def field(before: str, after: str) -> FieldChange:
    return FieldChange(path="command", before=before, after=after, effect=FieldEffect.NEW_ATTEMPT)


@given(TEXT, TEXT, TEXT, ROOMS)
def test_sides_that_differ_are_shown_differently(same: str, a: str, b: str, room: int) -> None:
    assume(a != b)
    before, after = sides(field(same + a, same + b), room)
    assert before != after
    assert max(columns(before), columns(after)) <= room


@given(TEXT, TEXT, TEXT, ROOMS)
def test_lines_that_went_and_came_make_one_text_of_the_other(
    same: str, a: str, b: str, room: int
) -> None:
    before, after = same + a, same + b
    lines = changed_lines(field(before, after), room)
    if lines is None:
        assert "\n" not in before + after
        return
    assert (lines.pairs == ()) == (before == after)
    assert len(lines.new) - len(lines.old) == after.count("\n") - before.count("\n")
    assert all(columns(line) <= room for line in (*lines.old, *lines.new))
    assert all(old != new for old, new in lines.pairs)


def test_a_list_changes_by_element() -> None:
    change = FieldChange(
        path="env.dependencies",
        before=["einops==0.8.1", "numpy", 1, "true"],
        after=["einops==0.8.0", "numpy", "1", "true", {"a": None}],
        effect=FieldEffect.NEW_ATTEMPT,
    )
    lines = some(changed_lines(change, 80))
    assert lines.amount == "-2 +3 elements"
    assert lines.old == ("einops==0.8.1", "1")
    assert lines.new == ("einops==0.8.0", '"1"', '{"a":null}')
    assert changed_lines(replace(change, before=None, added=True), 80) is None
