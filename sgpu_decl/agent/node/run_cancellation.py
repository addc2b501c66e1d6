"""Cancels a run that no further start helps, before the platform brings new nodes.

The platform starts a failed command again, `max_retries` times, whatever failed. Each time the run
gets all of its nodes, and has nothing to do there. So node 0 cancels the run, if nodes may call the
platform.

The request of a platform (`PlatformTable.cancellation`) is a POST with a bearer token:

    path        of the request; its body has the id of the run
    id          the name of the id in the marker of the launch folder and in the body
    host, token         variables of a node that has credentials
    profiles, profile   variables of the file of profiles, and of the profile in it
    file, default       the defaults of that file and that profile
"""

from __future__ import annotations

import json
import os

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.node.log_forwarding import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_MARKER = "submitted.json"
_PATIENCE = 10.0  # seconds
_GOES_ON = "the platform may start this run again, which changes nothing"


def cancel_run(launch: str, request: Mapping[str, str]) -> None:
    """Cancel the run of a launch folder, whose marker has its id. Without credentials or marker,
    nothing is done."""
    import http.client
    import urllib.request

    run_id = (attempt_files.read_json(launch, _MARKER) or {}).get(request["id"])
    login = _login(os.environ, request)
    if login is None or not isinstance(run_id, int):
        return
    host, token = login
    base = host.rstrip("/") if "://" in host else f"https://{host.rstrip('/')}"
    try:
        post = urllib.request.Request(  # noqa: S310  the platform's own address
            f"{base}{request['path']}",
            data=json.dumps({request["id"]: run_id}).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.urlopen(post, timeout=_PATIENCE):  # noqa: S310
            say("this run has failed for good: no further attempt is made")
    except OSError as error:
        say(f"{_GOES_ON}: {error}")
    except (ValueError, http.client.HTTPException):  # their texts may have the token
        say(f"{_GOES_ON}: the credentials of this node make no request")


def _login(environ: Mapping[str, str], request: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the host and the token where the platform's clients find them: in variables, or else
    in a profile. Both come from one place, so that no token is sent to another host."""
    login: Mapping[str, str] = {name: environ.get(request[name], "") for name in ("host", "token")}
    if not any(login.values()):
        login = _profile(environ, request)
    host, token = login.get("host"), login.get("token")
    return (host, token) if host and token else None


def _profile(environ: Mapping[str, str], request: Mapping[str, str]) -> Mapping[str, str]:
    """Return the profile that the platform's clients use; empty if there is none."""
    import configparser

    file = environ.get(request["profiles"]) or request["file"]
    # As for those clients, no profile takes what it lacks from another: a token is for one host.
    profiles = configparser.RawConfigParser(default_section="")
    try:
        profiles.read(os.path.expanduser(file), encoding="utf-8")  # ignores errors of opening
    except (configparser.Error, OSError, ValueError):  # their texts may have the token
        say(f"`{file}` is not a file of profiles")
        return {}
    name = environ.get(request["profile"]) or request["default"]
    return profiles[name] if profiles.has_section(name) else {}
