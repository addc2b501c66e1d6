"""What the emulator's user decides about how runs are executed."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ExecutionSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSettings:
    """How runs are executed.

    Attributes:
        capacity: how many GPUs there are of an accelerator type (`{"GPU_1xA10": 4}`); of a type
            that is not named there are enough.
        queue_timeout: for how many seconds a run waits for them at most; else for as long as its
            own timeout lets it.
        python: the interpreter that nodes find first on their PATH.
        wheels: a folder that dependencies of an environment are installed from; without one, the
            interpreter has to have them.
        grace: seconds between SIGTERM and SIGKILL of a node that is stopped.
        rooted: whether nodes get a root folder of their own with `/Workspace` and `/Volumes` in it;
            by itself it is tried out.
        generous: give nodes variables that nobody has seen on real ones: credentials and the MLflow
            experiment.
    """

    capacity: Mapping[str, int] = field(default_factory=dict)
    queue_timeout: float | None = None
    python: str = sys.executable
    wheels: Path | None = None
    grace: float = 10.0
    rooted: bool | None = None
    generous: bool = False
