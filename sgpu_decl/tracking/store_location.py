"""Where tracking data lies, and the command that shows it."""

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

_SQLITE = "sqlite:///"
_WORKSPACE = ("databricks", "databricks-uc", "uc")
_OF_SERVERS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
_OF_WORKSPACES = tuple(
    f"DATABRICKS_{name}" for name in ("HOST", "TOKEN", "CLIENT_ID", "CLIENT_SECRET")
)
_SECRET = ("_TOKEN", "_PASSWORD", "_SECRET")
# SQLAlchemy takes what follows a `?` for options, and from 2.1 on reads `%20` as a space; before,
# no other form of such a path is read. MLflow reads `%20` in paths of artifacts.
_MISREAD = ("?", "%")


def default_uri(home: Path) -> str:
    """Return the URI of the project's own store: `mlflow.db` in its `.sgpu` folder `home`."""
    return f"{_SQLITE}{plain_folder(home) / 'mlflow.db'}"


def artifact_folder(home: Path) -> Path:
    """Return the folder that the project's own store keeps artifacts in."""
    return plain_folder(home) / "mlartifacts"


def absolute_location(location: str, *, base: Path) -> str:
    """Return a place for artifacts that means the same in every working folder: URIs stay as they
    are, and paths are taken from `base`."""
    return location if urlsplit(location).scheme else str(plain_folder(base) / location)


def absolute_uri(uri: str | None, *, base: Path, home: Path) -> str:
    """Return a tracking URI that means the same in every working folder.

    Relative SQLite files (`sqlite:///mlflow.db`), relative `file:` URIs and bare paths are taken
    from `base`, the folder of the file that names them; servers, databases and `databricks` stay
    as they are. None gives the project's own store under `home`.
    """
    if uri is None:
        return default_uri(home)
    scheme = urlsplit(uri).scheme
    if scheme == "sqlite":
        path, mark, query = uri.removeprefix(_SQLITE).partition("?")
        if not uri.startswith(_SQLITE) or path.startswith((":memory:", "/")) or not path:
            return uri
        return f"{_SQLITE}{plain_folder(base) / path}{mark}{query}"
    if scheme == "file":
        parts = urlsplit(uri)
        if parts.netloc or parts.path.startswith("/"):
            return uri
        return (base.absolute() / unquote(parts.path)).as_uri()
    if scheme or uri == "databricks":
        return uri
    return (base.absolute() / Path(uri).expanduser()).as_uri()


def without_credentials(uri: str) -> str:
    """Return a URI without the name and the password in it."""
    parts = urlsplit(uri)
    _, name, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)) if name else uri


def is_on_disk(uri: str) -> bool:
    """Whether a tracking URI, absolute or not, names a file or a folder."""
    return urlsplit(uri).scheme in ("", "sqlite", "file") and uri not in _WORKSPACE


def credential_variables(uri: str) -> tuple[str, ...]:
    """Return the variables from which MLflow's client takes the credentials of a store: see
    `mlflow.utils.credentials`, and the unified authentication of the Databricks SDK. None for a
    database, whose URI has them."""
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):
        return _OF_SERVERS
    return _OF_WORKSPACES if (parts.scheme or parts.path) in _WORKSPACE else ()


def secret_credentials(uri: str) -> tuple[str, ...]:
    """Return those of `credential_variables` whose values are masked: no user names and hosts."""
    return tuple(name for name in credential_variables(uri) if name.endswith(_SECRET))


def sqlite_file(uri: str) -> Path | None:
    """Return the file of a SQLite store, None where a URI names something else."""
    path = uri.removeprefix(_SQLITE)
    if not uri.startswith(_SQLITE) or "?" in path or not path.startswith("/"):
        return None
    # MLflow writes a path with a `?` as `%3F`, which SQLAlchemy reads since 2.1.
    decoded = Path(unquote(path))
    return decoded if not Path(path).exists() and decoded.parent.is_dir() else Path(path)


def ui_command(uri: str, *, home: Path) -> str | None:
    """Return the shell command that opens the MLflow UI on a store.

    None where the store is a server, which has a page of its own.
    """
    if urlsplit(uri).scheme in {"http", "https", "databricks", "databricks-uc", "uc"}:
        return None
    if uri == "databricks":
        return None
    words = ["mlflow", "ui", "--backend-store-uri", uri]
    if uri == default_uri(home):
        words += ["--default-artifact-root", str(artifact_folder(home))]
    return shlex.join(words)


def refused_login(uri: str, error: ValueError, environ: Mapping[str, str]) -> str | None:
    """What it means that MLflow's client raised a `ValueError`: the login to the workspace that
    keeps the store was refused. None of any other store."""
    if uri.partition(":")[0] not in _WORKSPACE:
        return None
    words = str(error).partition(". Config:")[0]
    client = environ.get("DATABRICKS_CLIENT_ID")
    who = f" of `{client}`" if client else ""
    return (
        f"the login{who} to the workspace of `{uri}` was refused: {words}; check the profile, or "
        "DATABRICKS_HOST, DATABRICKS_AUTH_TYPE and what that needs, such as "
        "DATABRICKS_CLIENT_SECRET"
    )


def plain_folder(folder: Path) -> Path:
    """Return the name of a folder that can stand in URIs: its own, or that of its link, which has a
    plain name in the user's state folder."""
    path = folder.absolute()
    if not misread(str(path)):
        return path
    import hashlib

    import platformdirs

    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(platformdirs.user_state_path("sgpu")) / "folders" / name


def misread(path: str) -> bool:
    """Whether the path of a store is taken for another one."""
    return any(mark in path for mark in _MISREAD)


def link_plain_folder(folder: Path) -> None:
    """Make the link of a folder, if it needs one.

    Raises:
        OSError: it cannot be made.
    """
    plain, path = plain_folder(folder), folder.absolute()
    if plain == path or plain.is_symlink():
        return
    plain.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):  # another launch made it meanwhile
        plain.symlink_to(path)
