"""What a staging folder says of the state that its launches are of, so that a state that was lost
is noticed."""

from datetime import datetime

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.project_home import ProjectHome


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMark:
    """Whose state it is, its lineage, and who launched with it last, and when. `homes` are what the
    project may be known as; none where its checkout has no remotes."""

    project: str
    target: str
    homes: tuple[ProjectHome, ...]
    lineage: str
    who: str
    at: datetime

    def is_same_project(self, other: "StateMark") -> bool:
        """Whether both are of one target of one project, as far as that is known."""
        if (self.project, self.target) != (other.project, other.target):
            return False
        if not self.homes or not other.homes:
            return True
        return any(mine.is_same(theirs) for mine in self.homes for theirs in other.homes)
