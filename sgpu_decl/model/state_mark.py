"""The mark of a state: a file in a staging folder that says which state its launches belong to. So
a plan notices a state that was lost."""

from datetime import datetime

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.project_home import ProjectHome


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMark:
    """The project, the target and the lineage of the state, and who launched with it last, and
    when. `homes` are the names that the project has by its remotes; none if its checkout has no
    remotes."""

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
