"""What git says of the files of a plan."""

from sgpu_decl.frozen_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GitFacts:
    """The checkout that a plan was made from; what git cannot say is `None`. `tree` is the id of
    the project's folder: it stays the same through a merge, a squash or a rebase, where `commit`
    does not. `base` is the commit that the plan was compared with. `dirty` says whether a tracked
    file differs from the commit; a plan that changes something learns it when it is saved or
    applied."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    base: str | None = None
    tree: str | None = None

    @property
    def of_launch(self) -> dict[str, str]:
        """What an attempt keeps: the known ones of `commit`, `branch` and `dirty`, as text."""
        dirty = None if self.dirty is None else str(self.dirty).lower()
        facts = {"commit": self.commit, "branch": self.branch, "dirty": dirty}
        return {name: text for name, text in facts.items() if text is not None}
