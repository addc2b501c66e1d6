"""`command.sh`: what the platform runs on each node of a run."""

import re
import shlex

from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.agent.probe.node_facts import MANAGED_PYTHON
from sgpu_decl.backends.remote.launch_folder import FILES, NodeStart
from sgpu_decl.backends.remote.remote_layout import BACK
from sgpu_decl.rendering.templates import render

_OBJECTS = "../../../../objects"
"""Where shared objects lie, as seen from a launch folder: `runs/LINEAGE/RUN/ATTEMPT/`."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def render_command(start: NodeStart, platform: PlatformTable, *, managed: bool = False) -> str:
    """Return the bash script that runs one node.

    The same arguments give the same bytes. No text of the user's goes into it: names are of
    `launch_folder.FILES`, folders and attempts are quoted, and all else is a SHA-256 in hex or the
    platform's.

    Args:
        managed: whether the base environment promises torch, which may lie apart from `python3`.

    Raises:
        ValueError: something else came as one of these.
    """
    for digest in (start.agent, *start.files.values(), start.code, start.environment):
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
        objects=f"$launch/{_OBJECTS}" if around else shlex.quote(start.objects),
        options=[shlex.join(option) for option in (*places, *start.options(platform))],
        managed=MANAGED_PYTHON if managed else "",
    )
