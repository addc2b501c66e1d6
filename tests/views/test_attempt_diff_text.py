"""What differs between two attempts, as text."""

from datetime import UTC, datetime

from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_diff import AttemptDiff, FileDiff
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.views.attempt_diff_text import attempt_diff_text

BEFORE, AFTER = (
    AttemptView(
        ref=AttemptRef(Address(kind=Kind.RUN, name="train"), number),
        backend="local",
        state=AttemptState.SUCCEEDED,
    )
    for number in (1, 2)
)


def test_lines_that_are_the_same_have_no_colour_whatever_they_begin_with() -> None:
    lines = ("@@ -1,3 +1,3 @@", " - an item", "   ~ tilde", "-- old", "++ new")
    file = FileDiff(path="a.md", change="changed", lines=lines)
    diff = AttemptDiff(before=BEFORE, after=AFTER, files=(file,))
    text = attempt_diff_text(diff, now=datetime(2026, 1, 1, tzinfo=UTC), colour=True)
    shown = text.partition("code:\n")[2].splitlines()[:6]
    assert [line.encode().count(b"\x1b[") for line in shown] == [2, 2, 0, 0, 2, 2]
    assert shown[2] == "       - an item"
