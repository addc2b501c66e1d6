"""What a run's config means for its spec, on whatever backend."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.model.jsonable import Json
from sgpu_decl.rendering.entrypoint import declared_entry
from sgpu_decl.rendering.spec import Entry, RetrySpec

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

__all__ = ["entry_of", "retry_of"]


def entry_of(config: "RunConfig", *, root: Path) -> Entry:
    """What ranks run; a file's path is relative to the code where it lies inside `root`, else
    absolute."""
    entry = declared_entry({"command": config.command, "entrypoint": config.entrypoint})
    if config.command is not None:
        return entry
    args: Mapping[str, Json] | tuple[Json, ...] | None
    args = tuple(config.args) if isinstance(config.args, (list, tuple)) else config.args
    path = None if entry.path is None else _locate(entry.path, root)
    return replace(entry, path=path, args=args)


def retry_of(config: "RunConfig") -> RetrySpec:
    """When ranks are started again."""
    return RetrySpec(
        max=config.retry.max,
        on=tuple(str(blame) for blame in config.retry.on),
        backoff=config.retry.backoff.seconds,
    )


def _locate(path: str, root: Path) -> str:
    whole = (root / path).resolve()
    base = root.resolve()
    return str(whole.relative_to(base)) if whole.is_relative_to(base) else str(whole)
