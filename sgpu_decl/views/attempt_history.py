"""What each attempt of a run has changed against the one before."""

from collections.abc import Sequence

from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.state import Attempt
from sgpu_decl.views.terminal import escape

_SHOWN = 5


def changes_of(attempts: Sequence[Attempt]) -> list[tuple[str, ...]]:
    """Return, for each attempt, the paths of its fields that differ from those of the attempt
    before; `code`, `environment` and `packages` stand for content that does. The first has none."""
    before = [None, *(attempt.inputs for attempt in attempts)]
    return [
        () if earlier is None else _changes(earlier, attempt.inputs)
        for earlier, attempt in zip(before, attempts, strict=False)
    ]


def changed_words(changes: Sequence[str]) -> str:
    """Return `args.steps, code`, or as much of it as a line takes."""
    shown = ", ".join(escape(path) for path in changes[:_SHOWN])
    more = len(changes) - _SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def _changes(before: LaunchInputs, after: LaunchInputs) -> tuple[str, ...]:
    contents = {
        "code": (before.code_digest, after.code_digest),
        "environment": (before.environment_digest, after.environment_digest),
        "packages": (before.packages_digest, after.packages_digest),
    }
    changed = tuple(name for name, (old, new) in contents.items() if old != new)
    if before.spec == after.spec:
        return changed
    from sgpu_decl.planner.field_changes import compare  # with the words of plans

    return (*(difference.path for difference in compare(before.spec, after.spec)), *changed)
