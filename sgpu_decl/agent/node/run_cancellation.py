"""Cancels a run whose own code has failed, before the platform brings it nodes again.

The platform starts a failed command again, `max_retries` times, whatever failed. Each time it gives
the run all of its nodes, to be told that there is nothing to do. So node 0 cancels the run, where
the platform lets nodes ask it for something.

The request of a platform (`PlatformTable.cancellation`) is a POST with a bearer token, in these
words:

    path        of the request; its body has the id of the run
    id          what the marker of the launch folder and the body call the id
    host, token         variables of a node that has credentials
    profiles, profile   variables of the file of profiles, and of the profile in it
    file, default       that file and that profile where the variables do not name them
"""

from __future__ import annotations

import json
import os

from sgpu_decl.agent import attempt_files
from sgpu_decl.agent.node.log_forwarding import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["cancel_run"]

_MARKER = "submitted.json"
_PATIENCE = 10.0  # seconds
_GOES_ON = "the platform may start this run again, which changes nothing"


def cancel_run(launch: str, request: Mapping[str, str]) -> None:
    """Cancel the run of a launch folder, whose marker says which one it is. Where nodes have no
    credentials, or no marker is there, the platform goes on as it would."""
    import http.client
    import urllib.request

    run_id = (attempt_files.read_json(launch, _MARKER) or {}).get(request["id"])
    login = _login(os.environ, request)
    if login is None or not isinstance(run_id, int):
        return
    host, token = login
    base = host.rstrip("/") if "://" in host else f"https://{host.rstrip('/')}"
    try:
        asked = urllib.request.Request(  # noqa: S310  the platform's own address
            f"{base}{request['path']}",
            data=json.dumps({request["id"]: run_id}).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.urlopen(asked, timeout=_PATIENCE):  # noqa: S310
            say("the run's own code failed: no further attempt is made")
    except OSError as error:
        say(f"{_GOES_ON}: {error}")
    except (ValueError, http.client.HTTPException):  # their words may have the token
        say(f"{_GOES_ON}: the credentials of this node make no request")


def _login(environ: Mapping[str, str], request: Mapping[str, str]) -> tuple[str, str] | None:
    """Find the host and the token of this node where the platform's clients find them: in
    variables, or else in a profile. Both are of one place, so that no token is sent to another's
    host."""
    found: Mapping[str, str] = {name: environ.get(request[name], "") for name in ("host", "token")}
    if not any(found.values()):
        found = _profile(environ, request)
    host, token = found.get("host"), found.get("token")
    return (host, token) if host and token else None


def _profile(environ: Mapping[str, str], request: Mapping[str, str]) -> Mapping[str, str]:
    """Read the profile that the platform's clients take; nothing if there is none."""
    import configparser

    file = environ.get(request["profiles"]) or request["file"]
    # As for those clients, no profile takes what it lacks from another: a token is for one host.
    profiles = configparser.RawConfigParser(default_section="")
    try:
        profiles.read(os.path.expanduser(file), encoding="utf-8")  # passes over one it cannot open
    except (configparser.Error, OSError, ValueError):  # their words may have the token
        say(f"`{file}` is no file of profiles")
        return {}
    name = environ.get(request["profile"]) or request["default"]
    return profiles[name] if profiles.has_section(name) else {}
