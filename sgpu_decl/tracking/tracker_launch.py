"""The command of an attempt's tracker: a part of `spec.json`, which the supervisor runs."""

import sys
from importlib.util import find_spec
from typing import TypedDict

from sgpu_decl.distribution import extra_command
from sgpu_decl.errors import SgpuError


class TrackerCommand(TypedDict):
    argv: list[str]
    env: dict[str, str]


ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",  # nothing in a working folder shadows our modules
    "GIT_PYTHON_REFRESH": "quiet",  # git may be missing
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""What every tracker gets."""


def available() -> bool:
    """Tell whether this interpreter has MLflow, without importing it (that takes a second)."""
    return find_spec("mlflow") is not None


def require_mlflow() -> None:
    """Refuse a command that needs MLflow where this interpreter has none."""
    if not available():
        raise SgpuError(
            "MLflow is not installed",
            hint=f"install it with `{extra_command('mlflow')}`",
            code="mlflow_missing",
        )


def tracker_spec(*, enabled: bool) -> TrackerCommand | None:
    """Return the command of the tracker process, or None if the attempt is not tracked.

    On this machine the tracker runs in the interpreter of sgpu: that of the ranks may have no
    MLflow, and a start from an archive takes longer. It reads `tracking.json` in the attempt
    folder, which `SGPU_RUN_DIR` names.
    """
    if not enabled or not available():
        return None
    return {
        "argv": [sys.executable, "-m", "sgpu_decl.tracking.tracker"],
        "env": dict(ENVIRONMENT),
    }
