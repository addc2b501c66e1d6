"""`command.sh`: what a platform runs on each node of a run."""

import re
from collections.abc import Mapping

from sgpu_decl.rendering.templates import render

__all__ = ["FILES", "OBJECTS", "render_command"]

OBJECTS = "../../../../objects"
"""Where shared objects lie, as seen from a launch folder: `runs/LINEAGE/RUN/ATTEMPT/`."""

FILES = frozenset(
    {"spec.json", "_air.py", "_call.py", "_warm.py", "func.pkl", "func.bin", "inputs.pkl",
     "inputs.bin"}
)  # fmt: skip
"""What a launch folder may hold for the ranks."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def render_command(
    agent: str,
    files: Mapping[str, str],
    *,
    code: bool,
    environment: str | None = None,
    starts: int | None = None,
) -> str:
    """Return the bash script that runs one node.

    The same arguments give the same bytes. No text of the user's goes into it: names are of
    `FILES`, and all else is a SHA-256 in hex.

    Args:
        agent: the SHA-256 of the archive with the node agent.
        files: that of each file in the launch folder, which nodes see late.
        code: whether the run has code, which the platform brings.
        environment: the hex of the environment's digest, where one is declared.
        starts: how often the platform starts a launch of a job at most; None for what is launched
            once.

    Raises:
        ValueError: something else came as one of these.
    """
    for digest in (agent, *files.values(), *([environment] if environment is not None else [])):
        if not _SHA256.fullmatch(digest):
            raise ValueError(f"not a SHA-256 in hex: {digest!r}")
    for name in files:
        if name not in FILES:
            raise ValueError(f"no file of a launch folder: {name!r}")
    return render(
        "databricks",
        "command.sh.j2",
        agent=agent,
        objects=OBJECTS,
        files=sorted(files.items()),
        code=code,
        environment=environment or "",
        starts=str(starts) if starts is not None else "",
    )
