"""The other targets of a project that something was applied to."""

from sgpu_decl.model.target import BASE
from sgpu_decl.storing.state_store import StateStore


def other_targets_hint(states: StateStore, target: str | None) -> str | None:
    """A hint for a target without runs: the other targets that something was applied to."""
    others = [name for name in states.targets() if name != (target or BASE)]
    options = [f"with `-t {name}`" for name in others]
    return f"something was applied {' and '.join(options)}: look there" if options else None
