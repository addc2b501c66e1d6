"""Finds the workspace of a run in the YAML, the environment and the profiles, without a connection
and without the SDK."""

import configparser
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import canonical

_CREDENTIALS = ("DATABRICKS_", "ARM_", "GOOGLE_")  # variables that the SDK reads credentials from


@dataclass(frozen=True, slots=True)
class Account:
    """What a block of the YAML says: the profile and the host, each maybe left to the environment.
    `block` is the name of the block, for messages."""

    profile: str | None = None
    host: str | None = None
    block: str = field(default="backend", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The profile and the host that the SDK gets. `kind` is the one kind of login that is wanted
    (`auth_type`), if one is. `who` is a digest of the credentials: the same digest is the same
    user. `block` is that of the account. `by_block_alone` says that neither a profile nor a
    variable names the host."""

    profile: str | None
    host: str
    who: str
    block: str
    kind: str | None = None
    by_block_alone: bool = False

    @property
    def interactive(self) -> bool:
        """Whether a person has to log in with a browser."""
        return self.kind == "external-browser"


def login_of(account: Account, environ: Mapping[str, str]) -> Login:
    """Find the one workspace that is meant, and the profile with the credentials for it.

    Raises:
        BackendError: nothing names a workspace, a profile is not there, or two places name
            different workspaces: credentials for one must not be sent to the other.
    """
    file = Path(environ.get("DATABRICKS_CONFIG_FILE") or "~/.databrickscfg").expanduser()
    profiles = _profiles(file)
    named = account.profile or environ.get("DATABRICKS_CONFIG_PROFILE") or None
    if named is not None and named not in profiles:
        raise BackendError(
            f"`{file}` has no profile `{named}`",
            hint=f"log in with `databricks auth login --profile {named}`, or name one of "
            + (", ".join(f"`{item}`" for item in profiles) or "those that it has: it has none yet"),
            code="no_profile",
        )
    from_environment = environ.get("DATABRICKS_HOST") or None
    profile = named
    if profile is None and from_environment is None:
        profile = _only_profile(account, profiles, file)
    named_hosts = {
        f"`{account.block}.host`": account.host,
        "the variable `DATABRICKS_HOST`": from_environment,
        f"the profile `{profile}`": profiles[profile].get("host") if profile else None,
    }
    hosts = {source: normal_host(host) for source, host in named_hosts.items() if host}
    if not hosts:
        raise BackendError(
            "nothing says which Databricks workspace is meant",
            hint="log in with `databricks auth login --host URL`, or set "
            f"`{account.block}.profile`",
            code="no_workspace",
        )
    if len(set(hosts.values())) > 1:
        listed = ", ".join(f"{source} says `{host}`" for source, host in hosts.items())
        raise BackendError(
            f"it is not clear which workspace is meant: {listed}",
            hint=f"let them agree, or set `{account.block}.profile` alone and unset "
            "`DATABRICKS_HOST`",
            code="host_differs",
        )
    kind = (profiles[profile].get("auth_type") if profile else None) or environ.get(
        "DATABRICKS_AUTH_TYPE"
    )
    return Login(
        profile=profile,
        host=next(iter(hosts.values())),
        who=_digest(profiles.get(profile or "", {}), environ),
        block=account.block,
        kind=kind or None,
        by_block_alone=hosts.keys() == {f"`{account.block}.host`"},
    )


def _digest(profile: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """A digest, since its parts are secrets."""
    variables = {name: value for name, value in environ.items() if name.startswith(_CREDENTIALS)}
    return hashlib.sha256(canonical([dict(profile), variables]).encode()).hexdigest()


def normal_host(host: str) -> str:
    """A workspace's URL without what may follow it: `https://name`."""
    parts = urlsplit(host if "://" in host else f"https://{host}")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _profiles(file: Path) -> dict[str, Mapping[str, str]]:
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error):
        raise BackendError(
            f"`{file}` cannot be read as a file of profiles",
            hint="mend it, or write it anew with `databricks configure`",
            code="no_profile",
        ) from None
    # Sections with two underscores hold settings of tools.
    return {name: parser[name] for name in parser.sections() if not name.startswith("__")}


def _only_profile(
    account: Account, profiles: Mapping[str, Mapping[str, str]], file: Path
) -> str | None:
    """The profile if none is named: that of the host, else the default one."""
    host = account.host
    if host is None:
        return "DEFAULT" if profiles.get("DEFAULT") else None
    fitting = [
        name for name, profile in profiles.items() if normal_host(profile.get("host", "")) == host
    ]
    if len(fitting) == 1 or "DEFAULT" in fitting:
        return "DEFAULT" if "DEFAULT" in fitting else fitting[0]
    if fitting:
        names = ", ".join(f"`{name}`" for name in fitting)
        raise BackendError(
            f"`{file}` has several profiles for `{host}`: {names}",
            hint=f"say which with `{account.block}.profile`",
            code="no_profile",
        )
    raise BackendError(
        f"`{file}` has no profile for `{host}`",
        hint=f"log in with `databricks auth login --host {host}`",
        code="no_profile",
    )
