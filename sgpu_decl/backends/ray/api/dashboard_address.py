"""The address of a Ray cluster: the URL of its dashboard."""

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from sgpu_decl.errors import BackendError
from sgpu_decl.frozen_dataclass import dataclass

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
_PORT = 8265  # that Ray gives to its dashboard
_OTHER_PORTS = ("6379", "10001")  # that Ray gives to its head, and to Ray Client
VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
"""Where Ray's own client looks, in this order (`ray.dashboard.utils`,
`get_address_for_submission_client`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardAddress:
    """`url` has no slash at its end. `source` says what names it: `backend.address`, an environment
    variable, or None for the default. `passed_over` is a variable that has a value and names no
    dashboard."""

    url: str
    source: str | None = None
    passed_over: str | None = None

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def is_loopback(self) -> bool:
        """Whether requests stay on this machine."""
        host = self.parts.hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")

    @property
    def is_encrypted(self) -> bool:
        return self.parts.scheme == "https"


def address_of(written: str | None, environ: Mapping[str, str]) -> DashboardAddress:
    """Return where the dashboard is.

    Args:
        written: `backend.address`, already validated.

    Raises:
        BackendError: an environment variable names no dashboard.
    """
    if written is not None:
        return DashboardAddress(url=written, source="backend.address")
    passed_over = None
    for name in VARIABLES:
        text = environ.get(name, "").strip()
        if not text:
            continue
        if name == "RAY_ADDRESS" and not text.startswith(("http://", "https://")):
            passed_over = name  # it is mostly the address of something else
            continue
        refused = refuse_address(text)
        if refused is not None:
            summary, hint = refused
            raise BackendError(
                f"the environment variable `{name}` {summary}", hint=hint, code="bad_ray_address"
            )
        return DashboardAddress(url=canonical_url(text), source=name)
    return DashboardAddress(url=DEFAULT_ADDRESS, passed_over=passed_over)


def canonical_url(text: str) -> str:
    """The one spelling of a URL that `refuse_address` accepts."""
    parts = urlsplit(text)
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def refuse_address(text: str) -> tuple[str, str] | None:
    """Why a text is not the URL of a dashboard, in words that follow its name, and the way out; or
    `None`."""
    scheme, separator, rest = text.partition("://")
    host = (rest if separator else text).partition("/")[0]
    if not separator:
        if text in ("auto", "local"):
            return (
                f"must be the URL of a dashboard, not `{text}`",
                f"leave it out for the cluster of this machine, or write `{DEFAULT_ADDRESS}`",
            )
        return "must be the URL of a dashboard", f"write `http://{_name(host)}:{_port(host)}`"
    if scheme.lower() == "ray":
        return (
            "must be the URL of a dashboard, not an address of Ray Client",
            f"write `http://{_name(host)}:{_PORT}`",
        )
    if scheme.lower() not in ("http", "https"):
        way_out = f"write `http://{_name(host)}:{_port(host)}`"
        return "must begin with `http://` or `https://`", way_out
    try:
        parts = urlsplit(text)
        port, name = parts.port, parts.hostname
    except ValueError:
        port, name = None, None
    if not name or port == 0 or any(character.isspace() for character in text) or ".." in name:
        return "is not a usable URL", f"write it as in `{DEFAULT_ADDRESS}`"
    if "@" in parts.netloc:
        return (
            "must hold no name and no password",
            "set `RAY_JOB_HEADERS` to the headers that the dashboard needs, as JSON",
        )
    if parts.query or parts.fragment:
        return "must end with the path of the dashboard", f"write `{canonical_url(text)}`"
    return None


def _name(host: str) -> str:
    """The host of `host:port` or `[::1]:port`."""
    host = host.rpartition("@")[2]
    bracketed = re.match(r"\[[0-9A-Fa-f:.]+\]", host)
    name = bracketed[0] if bracketed else host.partition(":")[0]
    return name or "HOST"


def _port(host: str) -> str | int:
    """The port of the dashboard in `host:port`: that one, unless it is known for something else."""
    port = host.rpartition(":")[2]
    return port if port.isdecimal() and port not in _OTHER_PORTS else _PORT
