"""What the ranks of an attempt on a box do now, read from the copy of its folder."""

from collections.abc import Callable, Sequence
from datetime import datetime

from sgpu_decl.backends.activity_reader import ActivityReader
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.rank_activity import RankActivity


class BoxActivity(ActivityReader):
    """`pull` brings what is new, before each look."""

    def __init__(self, copy: ActivityReader, pull: Callable[[], object]) -> None:
        self._copy = copy
        self._pull = pull

    def look(self, view: AttemptView) -> tuple[datetime | None, Sequence[RankActivity]]:
        self._pull()
        return self._copy.look(view)

    def newest_lines(self, view: AttemptView, rank: int) -> Sequence[str] | None:
        self._pull()
        return self._copy.newest_lines(view, rank)
