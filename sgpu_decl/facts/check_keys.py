"""Keys of runs that need the same check: of the cells of a matrix, one cell is checked for all."""

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgpu_decl.config.loaded import LoadedRun

__all__ = ["entry_of", "needs_of"]


def entry_of(run: "LoadedRun") -> Hashable:
    """The entrypoint of a run with the names of its arguments."""
    config = run.config
    names = tuple(config.args) if isinstance(config.args, Mapping) else config.args is not None
    return ("entry", run.address.name, config.entrypoint, names, config.env.python)


def needs_of(run: "LoadedRun") -> Hashable:
    """The fields that a backend checks. Arguments and variables are no part of it: they differ from
    cell to cell, but not in a way that matters to a backend."""
    config = run.config
    return (
        "needs", run.address.name, config.type.name, config.type.node, config.gpus, config.timeout,
        config.max_parallel, config.pool, config.priority, config.budget, config.image,
        config.backend.kind, config.env.python, config.env.base, config.ray is not None,
    )  # fmt: skip
