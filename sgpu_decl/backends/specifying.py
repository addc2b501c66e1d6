"""What a run's config means for its spec, on whatever backend."""

from collections.abc import Mapping
from pathlib import Path

from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.jsonable import Json
from sgpu_decl.rendering.spec import Entry, Retry

__all__ = ["entry_of", "retry_of"]


def entry_of(config: RunConfig, *, root: Path) -> Entry:
    """What ranks run; a file's path is relative to the code where it lies inside `root`, else
    absolute."""
    if isinstance(config.command, str):
        return Entry(kind="shell", shell=config.command)
    if config.command is not None:
        return Entry(kind="command", command=tuple(config.command))
    args: Mapping[str, Json] | tuple[Json, ...] | None
    args = tuple(config.args) if isinstance(config.args, (list, tuple)) else config.args
    target, _, function = (config.entrypoint or "").partition(":")
    if not target.endswith(".py"):
        return Entry(kind="module_function", module=target, function=function, args=args)
    path = _locate(target, root)
    if not function:
        return Entry(kind="script", path=path, args=args)
    return Entry(kind="file_function", path=path, function=function, args=args)


def retry_of(config: RunConfig) -> Retry:
    """When ranks are started again."""
    return Retry(
        max=config.retry.max,
        on=tuple(str(blame) for blame in config.retry.on),
        backoff=config.retry.backoff.seconds,
    )


def _locate(path: str, root: Path) -> str:
    whole = (root / path).resolve()
    base = root.resolve()
    return str(whole.relative_to(base)) if whole.is_relative_to(base) else str(whole)
