"""Where ranks are, as text and JSON: those with equal stacks together."""

from collections.abc import Sequence

from sgpu_decl.agent.attempt.stack_groups import StackGroup, stack_groups
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.rank_output import RankStack


def stack_groups_text(stacks: Sequence[RankStack]) -> str:
    """Return the stacks of each group once, with the process that they are of."""
    pids = {one.rank: one.pid for one in stacks}
    parts = []
    for group in _groups(stacks):
        first = group.ranks[0]
        process = f"process {pids[first]}"
        if len(group.ranks) > 1:
            process = f"these are of rank {first}, {process}"
        parts.append(f"{group.title} ({process}):\n{group.text.rstrip()}\n")
    return "\n".join(parts)


def stack_groups_json(stacks: Sequence[RankStack]) -> list[Json]:
    """Return `groups` of the JSON."""
    return [
        {"ranks": list(group.ranks), "differs": group.differs, "at": group.at}
        for group in _groups(stacks)
    ]


def _groups(stacks: Sequence[RankStack]) -> list[StackGroup]:
    return stack_groups({one.rank: one.text for one in stacks if one.text is not None})
