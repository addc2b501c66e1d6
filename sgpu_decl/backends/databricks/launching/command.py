"""`command.sh`: what the platform runs on each node of a run."""

import re
import shlex

from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.agent.probe.managed_environment import MANAGED_PYTHON
from sgpu_decl.backends.remote.launch_folder import FILES, NodeStart
from sgpu_decl.backends.remote.remote_layout import BACK
from sgpu_decl.rendering.templates import render

__all__ = ["OBJECTS", "render_command", "render_probe"]

OBJECTS = "../../../../objects"
"""Where shared objects lie, as seen from a launch folder: `runs/LINEAGE/RUN/ATTEMPT/`."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def render_command(start: NodeStart, platform: PlatformTable, *, managed: bool = False) -> str:
    """Return the bash script that runs one node.

    The same arguments give the same bytes. No text of the user's goes into it: names are of
    `launch_folder.FILES`, folders are quoted, and all else is a SHA-256 in hex or the platform's.

    Args:
        managed: whether the base environment promises torch, which may lie apart from `python3`.

    Raises:
        ValueError: something else came as one of these.
    """
    given = (start.agent, *start.files.values(), start.code, start.environment)
    for digest in given:
        if digest is not None and not _SHA256.fullmatch(digest):
            raise ValueError(f"not a SHA-256 in hex: {digest!r}")
    for name in start.files:
        if name not in FILES:
            raise ValueError(f"no file of a launch folder: {name!r}")
    around = start.back == f"{start.launch}/{BACK}"  # a node may have it mounted elsewhere
    places = () if around else (("--back", start.back),)
    return render(
        "databricks",
        "command.sh.j2",
        agent=start.agent,
        launch=shlex.quote(start.launch),
        objects=f"$launch/{OBJECTS}" if around else shlex.quote(start.objects),
        options=[shlex.join(option) for option in (*places, *start.options(platform))],
        managed=MANAGED_PYTHON if managed else "",
    )


def render_probe(
    agent: str,
    act: str,
    *,
    launch: str,
    objects: str,
    out: str,
    platform: PlatformTable,
    seconds: float,
    secret: str = "",
    environment: str = "",
) -> str:
    """Return the bash script that measures one node, which gets its agent as any run does.

    Args:
        agent: the SHA-256 of the archive with the node agent.
        act: one of those that `agent.probe.probe_program` knows.
        launch: the folder that the script lies in.
        objects: the folder of shared objects, with the agent.
        out: where records go.
        platform: what the platform calls things.
        seconds: how long the act may take, where it waits for something.
        secret: the variable of a secret, if one is to be resolved.
        environment: the hex of an environment's digest, if one is to be made.

    Raises:
        ValueError: `agent` is no SHA-256.
    """
    if not _SHA256.fullmatch(agent):
        raise ValueError(f"not a SHA-256 in hex: {agent!r}")
    return render(
        "databricks",
        "probe.sh.j2",
        agent=agent,
        launch=shlex.quote(launch),
        objects=shlex.quote(objects),
        out=shlex.quote(out),
        managed="",  # what the PATH has is measured
        platform=shlex.quote(platform.to_json()),
        act=shlex.quote(act),
        seconds=f"{seconds:g}",
        secret=shlex.quote(secret) if secret else "",
        environment=shlex.quote(environment) if environment else "",
    )
