"""State stores by their URLs."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import parse_qs, urlencode

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.backend_kinds import kind_named
from sgpu_decl.storing.sqlite.database import refuse_migrated
from sgpu_decl.storing.sqlite.store import SCHEME, SqliteStore
from sgpu_decl.storing.state_folder import make_state_folder
from sgpu_decl.storing.state_store import StateStore

if TYPE_CHECKING:
    from sgpu_decl.model.project_home import ProjectHome
    from sgpu_decl.storing.journal.lock_lease import LockLease
    from sgpu_decl.storing.journal.offline_store import OfflineStore
    from sgpu_decl.storing.journal.port import Journal
    from sgpu_decl.storing.journal.store import JournalStore
    from sgpu_decl.storing.postgres.server import ServerConnection
    from sgpu_decl.storing.proposals import ProposalStore
    from sgpu_decl.storing.state_root import StateRoot

FOLDER = "folder"
POSTGRES = "postgres"
DATABRICKS = "databricks"  # a kind of backend that keeps files, too
OBJECT = "object"
SHARED = (FOLDER, POSTGRES, DATABRICKS, OBJECT)
DEFAULT_SCHEMA = "sgpu"
REPLICA = "replica.db"
SharedStateStore: TypeAlias = "JournalStore"
"""The type of `shared_store` for other rooms, which know no kind of store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPlace:
    """Where a project keeps the state that machines share.

    Attributes:
        kind: one of `SHARED`.
        address: the path of a folder, or the URL of a server or a bucket. It holds no password.
        project: the name of the project.
        schema: of a database.
        password: a reference, `env:NAME`; or `databricks`, for a token of the login there.
        profile: of the login to a workspace.
        host: of a workspace.
        endpoint: the server of a bucket, where it is not that of the cloud.
        region: of a bucket in S3.
        account: of a container in Azure.
    """

    kind: str
    address: str
    project: str
    schema: str | None = None
    password: str | None = None
    profile: str | None = None
    host: str | None = None
    endpoint: str | None = None
    region: str | None = None
    account: str | None = None


def local_store(folder: Path) -> SqliteStore:
    """The store of a target whose files lie in a folder of this machine."""
    return SqliteStore(folder / "state.db")


def unmigrated_store(folder: Path) -> SqliteStore:
    """As `local_store`.

    Raises:
        SgpuError: its state was copied to a shared store.
    """
    store = local_store(folder)
    refuse_migrated(store.path)
    return store


def shared_store(
    place: SharedPlace,
    folder: Path,
    *,
    lease: "LockLease | None" = None,
    commit: Callable[[], str | None] = lambda: None,
    homes: Callable[[], Sequence["ProjectHome"]] = lambda: (),
) -> "SharedStateStore":
    """The store of a target on this place. Its copy lies in `folder` of this machine, which has the
    target's name. `lease` is that of its locks; `commit` gives the git commit of the project, for
    the log, and `homes` what the project may be known as."""
    from sgpu_decl.storing.journal.store import JournalStore

    return JournalStore(
        shared_journal(place, folder.name),
        folder / REPLICA,
        url=_url_of(place),
        lease=lease,
        commit=commit,
        homes=homes,
    )


def offline_store(place: SharedPlace, folder: Path) -> "OfflineStore":
    """What this machine has read of the store of a target on this place; nothing asks the place.
    `folder` as in `shared_store`."""
    from sgpu_decl.storing.journal.offline_store import OfflineStore

    journal = shared_journal(place, folder.name)
    return OfflineStore(journal, folder / REPLICA, url=_url_of(place))


def _url_of(place: SharedPlace) -> Callable[[Path], str]:
    """How `open_state_store` finds the store of a copy again."""

    def url(replica: Path) -> str:
        names = (field.name for field in fields(place) if field.name != "kind")
        values = {name: getattr(place, name) for name in names}
        written = {name: value for name, value in values.items() if value is not None}
        return f"{place.kind}:?{urlencode({**written, 'replica': replica.absolute()})}"

    return url


def open_state_store(url: str) -> StateStore | None:
    """The store of that URL; None for one of a kind that this sgpu does not know."""
    scheme, _, rest = url.partition(":")
    if scheme == SCHEME:
        return SqliteStore(Path(rest))
    if scheme not in SHARED:
        return None
    values = {name: values[0] for name, values in parse_qs(rest.removeprefix("?")).items()}
    replica = Path(values.pop("replica"))
    if not values.keys() <= {field.name for field in fields(SharedPlace)}:
        return None  # where a newer sgpu says more, this would be another place
    return shared_store(SharedPlace(kind=scheme, **values), replica.parent)


def local_proposals(folder: Path) -> "ProposalStore":
    """The proposals of a target whose files lie in a folder of this machine."""
    from sgpu_decl.places.folder import FolderPlace
    from sgpu_decl.storing.proposals import FileProposals
    from sgpu_decl.storing.state_root import StateRoot

    root = StateRoot(
        place=FolderPlace(folder, mode=0o600),
        name=str(folder),
        kind="the state",
        path=str(folder),
        require=lambda: make_state_folder(folder / "proposals"),
    )
    return FileProposals(root, root.path)


def shared_proposals(place: SharedPlace, target: str) -> "ProposalStore":
    """The proposals of a target on this place."""
    if place.kind == POSTGRES:
        from sgpu_decl.storing.postgres.journal import PostgresProposals

        return PostgresProposals(_server(place), project=place.project, target=target)
    from sgpu_decl.storing.proposals import FileProposals

    root = _root_of(place)
    return FileProposals(root, f"{root.path}/{place.project}/{target}")


def shared_journal(place: SharedPlace, target: str) -> "Journal":
    """The entries of a target on this place."""
    if place.kind == POSTGRES:
        from sgpu_decl.storing.postgres.journal import PostgresJournal

        return PostgresJournal(_server(place), project=place.project, target=target)
    from sgpu_decl.storing.journal.file_journal import FileJournal

    return FileJournal(_root_of(place), project=place.project, target=target)


def _root_of(place: SharedPlace) -> "StateRoot":
    """The folder of all states, in a place that has files."""
    from sgpu_decl.storing.state_root import StateRoot

    if place.kind == FOLDER:
        from sgpu_decl.places.folder import FolderPlace

        folder = FolderPlace(Path(place.address), shared=True)
        return StateRoot(place=folder, name=place.address, path=place.address)
    if place.kind == OBJECT:
        from sgpu_decl.model.bucket_url import bucket_url
        from sgpu_decl.places.bucket import BucketAddress, BucketPlace

        url = bucket_url(place.address)
        assert url is not None  # noqa: S101  the block `state` takes no other one
        server = {"endpoint": place.endpoint, "region": place.region, "account": place.account}
        bucket = BucketPlace(BucketAddress(url=url, **server))
        return StateRoot(place=bucket, name=bucket.name, path="", begin=bucket.require_conditions)
    open_root = kind_named(place.kind).state_root
    root = open_root(place) if open_root is not None else None
    assert isinstance(root, StateRoot)  # noqa: S101  a kind of backend in `SHARED` has one
    return root


def _server(place: SharedPlace) -> "ServerConnection":
    from sgpu_decl.storing.postgres.server import Server, ServerConnection

    token = None
    if place.password == DATABRICKS:
        token = kind_named(DATABRICKS).database_token
    return ServerConnection(
        Server(
            url=place.address,
            schema=place.schema or DEFAULT_SCHEMA,
            password=place.password,
            token=token,
        )
    )
