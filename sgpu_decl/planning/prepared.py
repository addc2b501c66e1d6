"""A plan and all that its apply needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgpu_decl.code.counted_code import CountedCode
    from sgpu_decl.code.modules import ModuleFolder
    from sgpu_decl.code.snapshot import Snapshot
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.plan import Plan
    from sgpu_decl.planning.checkout import Checkout
    from sgpu_decl.planning.environment_facts import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A plan and all that its apply needs, so that another plan made meanwhile changes nothing.

    `code` maps a digest to the files behind it, some of which lie in `copies` and go with them;
    `counted` maps one to what of it counts, with the name of the first such run; `environments`
    maps one to what it takes to make that environment. What they lack, as those of a saved plan do,
    is looked for in the stores and made again from what the plan says. `staged` says that ranks
    find both where they will look. `keep_warm` are the seconds that what the ranks of a call import
    stays imported. A plan that `heals` undoes what was done by hand.
    """

    plan: "Plan"
    checkout: "Checkout"
    code: "Mapping[str, Snapshot]" = field(default_factory=dict)
    counted: "Mapping[str, tuple[tuple[str, CountedCode], ...]]" = field(default_factory=dict)
    environments: "Mapping[str, Recipe]" = field(default_factory=dict)
    copies: "ModuleFolder | None" = None
    staged: bool = False
    keep_warm: float = 0.0
    heals: bool = False

    @property
    def code_trees(self) -> "tuple[Snapshot, ...]":
        """The code that was read, with the files that are excluded from it."""
        return tuple(sorted(self.code.values(), key=lambda tree: (tree.root, tree.digest)))

    def to_json(self) -> "dict[str, Json]":
        """The plan as published (`schemas/plan.v1.schema.json`)."""
        from sgpu_decl.planner.plan_json import plan_to_json

        return plan_to_json(self.plan)

    def __repr__(self) -> str:
        return f"<Prepared: {self.plan!r}>"

    def with_commit(self) -> "Prepared":
        """The same, and whether the files differ from the commit. git is asked only if something
        changes."""
        git = self.plan.git
        idle = all(change.idle for change in self.plan.changes)
        if git is None or git.dirty is not None or idle:
            return self
        return replace(self, plan=replace(self.plan, git=replace(git, dirty=self.checkout.dirty)))
