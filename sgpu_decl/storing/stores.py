"""State stores by their URLs."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.storing.sqlite.store import SCHEME, SqliteStore
from sgpu_decl.storing.state_store import StateStore

if TYPE_CHECKING:
    from sgpu_decl.storing.journal.port import Journal

FOLDER = "folder"
POSTGRES = "postgres"
SHARED = (FOLDER, POSTGRES)
REPLICA = "replica.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPlace:
    """Where a project keeps the state that machines share. `kind` and `address` are those of the
    `state` block; `commit` is the git commit of the project, for the log."""

    kind: str
    address: str
    project: str
    commit: str | None = None


def local_store(folder: Path) -> StateStore:
    """The store of a target whose files lie in a folder of this machine."""
    return SqliteStore(folder / "state.db")


def shared_store(place: SharedPlace, folder: Path) -> StateStore:
    """The store of a target on this place. Its copy lies in `folder` of this machine, which has the
    target's name."""
    from sgpu_decl.storing.journal.store import JournalStore

    def url(target: str, replica: Path) -> str:
        fields = {
            "address": place.address,
            "project": place.project,
            "target": target,
            "replica": replica.absolute(),
        }
        return f"{place.kind}:?{urlencode(fields)}"

    return JournalStore(
        _journal(place, folder.name),
        folder / REPLICA,
        target=folder.name,
        url=url,
        commit=place.commit,
    )


def open_state_store(url: str) -> StateStore | None:
    """The store of that URL; None for one of a kind that this sgpu does not know."""
    scheme, _, rest = url.partition(":")
    if scheme == SCHEME:
        return SqliteStore(Path(rest))
    if scheme not in SHARED:
        return None
    fields = {name: values[0] for name, values in parse_qs(rest.removeprefix("?")).items()}
    place = SharedPlace(kind=scheme, address=fields["address"], project=fields["project"])
    return shared_store(place, Path(fields["replica"]).parent)


def _journal(place: SharedPlace, target: str) -> "Journal":
    from sgpu_decl.storing.folder.journal import FolderJournal

    return FolderJournal(Path(place.address), project=place.project, target=target)
