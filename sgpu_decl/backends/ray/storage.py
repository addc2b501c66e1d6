"""What attempts left on Ray clusters."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.ray.watching.attempts import RayAttempts
from sgpu_decl.backends.remote.pending_gc import PendingGc
from sgpu_decl.backends.remote.staging_area import StagingArea
from sgpu_decl.backends.remote.storage import RemoteStorage
from sgpu_decl.model.launch import LaunchRecord

__all__ = ["RayStorage"]

_EXIT = 10.0  # seconds in which a driver exits that has written its outcome
_PAUSE = 0.1


class RayStorage(RemoteStorage):
    """Nothing is deleted of an attempt whose driver has not exited: a job that goes on without a
    launch folder is a launch whose driver has not written that yet (`RayLaunches.marker`)."""

    def __init__(
        self,
        layout: AttemptLayout,
        attempts: RayAttempts,
        pending_gc: PendingGc,
        area_with: Callable[[Mapping[str, Any]], StagingArea],
    ) -> None:
        super().__init__(layout, attempts, pending_gc, area_with)
        self._exits = attempts.exits

    def free(self, record: LaunchRecord) -> int:
        deadline = time.monotonic() + _EXIT
        while self._exits(record):
            if time.monotonic() > deadline:
                return 0  # the next gc does it
            time.sleep(_PAUSE)
        return super().free(record)
