"""State stores by their URLs."""

from pathlib import Path

from sgpu_decl.storing.sqlite.store import SCHEME, SqliteStore
from sgpu_decl.storing.state_store import StateStore


def local_store(folder: Path) -> StateStore:
    """The store of a target whose files lie in a folder of this machine."""
    return SqliteStore(folder / "state.db")


def open_state_store(url: str) -> StateStore | None:
    """The store of that URL; None for one of a kind that this sgpu does not know."""
    scheme, _, rest = url.partition(":")
    return SqliteStore(Path(rest)) if scheme == SCHEME else None
