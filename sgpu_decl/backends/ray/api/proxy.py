"""The HTTP proxy between this machine and a dashboard, by the variables that Ray's own client
follows: it sends its requests with `requests` (`SubmissionClient._do_request` in
`ray/dashboard/modules/dashboard_sdk.py`), which reads `http_proxy`, `https_proxy`, `all_proxy` and
`no_proxy`, in small letters first (`requests.utils`). Requests to this machine take no proxy here.
"""

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import field
from urllib.parse import unquote, urlsplit

from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress
from sgpu_decl.errors import BackendError
from sgpu_decl.frozen_dataclass import dataclass

_PORT = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """`variable` names it. `headers` are for the proxy itself."""

    variable: str
    host: str
    port: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def proxy_of(address: DashboardAddress, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for requests to a dashboard; None for requests that take none.

    Raises:
        BackendError: a variable names a proxy that cannot be used.
    """
    if address.is_loopback or _is_exempt(address, environ):
        return None
    for lower in (f"{address.parts.scheme}_proxy", "all_proxy"):
        for variable in (lower, lower.upper()):
            if text := environ.get(variable, "").strip():
                return _proxy(variable, text)
    return None


def _proxy(variable: str, text: str) -> Proxy:
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:
        host, port = None, 0
    if host is None or parts.scheme != "http":
        raise BackendError(
            f"the environment variable `{variable}` names no proxy that can be used",
            hint="write it as in `http://proxy.example:3128`, or name the host of the dashboard in "
            "`NO_PROXY`",
            code="bad_proxy",
        )
    headers = {}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(variable=variable, host=host, port=port, headers=headers)


def _is_exempt(address: DashboardAddress, environ: Mapping[str, str]) -> bool:
    host, port = address.parts.hostname or "", address.parts.port
    listed = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    for entry in listed.lower().replace(",", " ").split():
        name = entry.lstrip(".")
        if entry == "*" or name in (host, f"{host}:{port}"):
            return True
        if host.endswith(f".{name}") or f"{host}:{port}".endswith(f".{name}"):
            return True
        try:
            network = ipaddress.ip_network(entry.strip("[]"), strict=False)
            if ipaddress.ip_address(host) in network:
                return True
        except ValueError:
            continue  # one of them is a name
    return False
