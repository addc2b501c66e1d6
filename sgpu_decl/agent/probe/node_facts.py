"""The facts of a node, read without changing anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from sgpu_decl.agent.system.kernel_features import kernel_features

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
_PATIENCE = 60.0  # seconds

# Where nodes keep the Python environment of the bases `ai-…` (evidence: C5).
MANAGED_ENVIRONMENT = "/opt/databricks-environments/databricks-ai"
MANAGED_PYTHON = f"{MANAGED_ENVIRONMENT}/bin/python3"


def node_facts(environ: Mapping[str, str], source: str, scratch: str) -> dict[str, Any]:
    """Return the facts that the engine assumes, as plain data. Of variables, only names are read.

    Args:
        source: BASH_SOURCE of the command.
        scratch: a folder on the node's own disk.
    """
    system = os.uname()
    disk = shutil.disk_usage(scratch)
    return {
        "bash_source": source,
        "python": sys.executable,
        "python_version": ".".join(map(str, sys.version_info[:3])),
        "torch": _has_torch(sys.executable),
        "managed_torch": os.path.exists(MANAGED_PYTHON) and _has_torch(MANAGED_PYTHON),
        "uid": os.getuid(),
        "kernel": f"{system.sysname} {system.release} {system.machine}",
        "features": kernel_features(),
        "free_bytes": disk.free,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": sum(
            name.startswith("nvidia") and name[6:].isdigit() for name in os.listdir("/dev")
        ),
        "variables": sorted(environ),
    }


def _has_torch(python: str) -> bool:
    """Whether an interpreter finds torch; importing it takes long."""
    try:
        process = subprocess.run(
            [python, "-c", _HAS_TORCH], capture_output=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return process.returncode == 0
