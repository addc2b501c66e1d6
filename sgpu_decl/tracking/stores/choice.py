"""The choice between SQL, REST and MLflow's own client for a store."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sgpu_decl.tracking.store_location import sqlite_file, without_credentials
from sgpu_decl.tracking.stores.rest import RestRunStore, needs_client
from sgpu_decl.tracking.stores.sqlite import REVISIONS, SqlRunStore, revision
from sgpu_decl.tracking.stores.sqlite_tables import make_store
from sgpu_decl.tracking.stores.store_protocol import RunStore, StoreError

if TYPE_CHECKING:
    from sgpu_decl.tracking.stores.client import ClientRunStore

PATIENCE = 5.0  # seconds for one answer of a server


def open_tracking_store(
    uri: str,
    *,
    environ: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
    patience: float = PATIENCE,
) -> RunStore:
    """Open the store of an absolute tracking URI; a missing SQLite store is made.

    Args:
        environ: has the credentials of a server.
        say: gets a text for each step that takes a while, to follow "waiting for".
        patience: the timeout of an answer, in seconds.

    Raises:
        StoreError: it cannot be opened.
    """
    if _is_server(uri):
        if not needs_client(environ):
            say(f"the tracking server {without_credentials(uri)}")
            return RestRunStore(_with_credentials(uri, environ), environ, patience)
        say("MLflow's own client: the server wants more than a password or a token")
        return open_client_store(uri, shared=False)
    path = sqlite_file(uri)
    if path is None:
        say(f"MLflow's own client, which knows the store {without_credentials(uri)}")
        return open_client_store(uri, shared=False)

    make_store(path, say)
    if (schema := revision(path)) in REVISIONS:
        return SqlRunStore(path)
    say(f"MLflow's own client: the schema {schema} of {path} is unknown here")
    return open_client_store(uri, shared=True)


def needs_no_mlflow(uri: str, environ: Mapping[str, str]) -> bool:
    """Whether the store of an absolute tracking URI exists and can be used by SQL or REST."""
    if _is_server(uri):
        return not needs_client(environ)

    path = sqlite_file(uri)
    try:
        return path is not None and revision(path) in REVISIONS
    except StoreError:
        return False


def store_in_words(uri: str, environ: Mapping[str, str], patience: float) -> str:
    """Look at the store of an absolute tracking URI, without making it, and describe it.

    Raises:
        StoreError: it cannot be used.
    """
    if _is_server(uri):
        if needs_client(environ):
            return "not asked: it needs MLflow's own client"
        RestRunStore(uri, environ, patience).ping()
        return "answers"
    path = sqlite_file(uri)
    if path is None:
        return "not looked at: it needs MLflow's own client"

    schema = revision(path, patience)
    if schema is None:
        return "is made by the first run"
    if schema in REVISIONS:
        return f"schema {schema}"
    return f"schema {schema}, which is unknown here: MLflow's own client is used, which is slower"


def _with_credentials(uri: str, environ: Mapping[str, str]) -> str:
    """Return the URI of a server as it is exported, if that differs in the credentials alone: a
    record of a run on other machines has the URI without them."""
    exported = environ.get("MLFLOW_TRACKING_URI", "")
    try:
        same = without_credentials(exported) == uri
    except ValueError:  # its text may have the password
        raise StoreError("MLFLOW_TRACKING_URI is malformed") from None
    return exported if same else uri


def _is_server(uri: str) -> bool:
    return urlsplit(uri).scheme in ("http", "https")


def open_client_store(uri: str, *, shared: bool = False) -> "ClientRunStore":
    """A store by MLflow's own client. Raises StoreError."""
    try:
        from sgpu_decl.tracking.stores.client import ClientRunStore
    except ImportError as error:
        raise StoreError(
            f"MLflow cannot be imported, and only its own client opens "
            f"{without_credentials(uri)}: {error}"
        ) from error
    return ClientRunStore(uri, shared=shared)
