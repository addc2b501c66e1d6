"""What the processes of a run's Ray cluster find in their environment, and what its driver finds.

The unit of such a run is the node, and it has no ranks. So neither gets the variables of a rank: a
library that finds WORLD_SIZE in a task of Ray waits for ranks that never come. Nor do they get what
an outer Ray cluster has set.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_OF_RANKS = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
     "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "REPLICA_RANK", "MASTER_ADDR", "MASTER_PORT"}
)  # fmt: skip


def without_outer_ray(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the agent without those of a Ray cluster that it may run in."""
    return {name: value for name, value in inherited.items() if not name.startswith("RAY_")}


def without_rank(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of a rank."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OF_RANKS and not name.startswith("TORCHELASTIC_")
    }


def driver_environment(
    environment: Mapping[str, str], cluster: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a Python driver: that of a rank, changed for the cluster.

    The driver removes the variables of a rank itself, once our code there has read them: they are
    named in SGPU_REMOVED.
    """
    removed = sorted(environment.keys() - without_rank(environment).keys())
    return {**environment, **cluster, "SGPU_REMOVED": ",".join(removed)}


def command_environment(
    environment: Mapping[str, str], cluster: Mapping[str, str], python: str
) -> dict[str, str]:
    """Return the environment of a command that is the driver.

    The folder of the cluster's interpreter comes first on its PATH: a driver needs the same Ray and
    Python as the cluster, and `ray status` beside it finds both, too.
    """
    path = [os.path.dirname(python), environment.get("PATH", os.defpath)]
    return {**without_rank(environment), **cluster, "PATH": os.pathsep.join(filter(None, path))}


def python_path(spec: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Return the PYTHONPATH of Ray's workers: they import what the driver can import of the run's
    code, on each node from its own copy."""
    entry, code = spec["entry"], spec["code_dir"]
    folders = [code]
    if entry["path"]:
        folders.append(os.path.dirname(os.path.join(code, entry["path"])))
    folders += (entry["call"] or {}).get("path") or ()
    folders += filter(None, [environment.get("PYTHONPATH")])
    return os.pathsep.join(dict.fromkeys(folders))
