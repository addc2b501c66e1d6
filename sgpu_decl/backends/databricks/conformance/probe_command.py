"""The script that a probe runs on each node."""

import re
import shlex

from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.rendering.templates import render

_SHA256 = re.compile(r"[0-9a-f]{64}")


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
