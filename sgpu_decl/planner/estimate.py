"""What a plan may cost at most: arithmetic over limits that the user set. Unknown stays unknown."""

import math
from collections.abc import Mapping

from sgpu_decl.config.text_types import Duration
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Action, Change, Estimate


class Spending:
    """Sums GPU hours over launches: expected ones are known only where no GPU is used, worst ones
    where every launch has a timeout. Costs need prices, which nothing here knows."""

    def __init__(self) -> None:
        self._hours: list[float | None] = []
        self._used_gpus = False

    def add(self, change: Change) -> None:
        """Count a change, if it launches."""
        if change.launch is None or change.action not in (Action.CREATE, Action.REPLACE):
            return
        spec = change.launch.inputs.spec.fields
        hours = worst_hours(spec)
        self._used_gpus = self._used_gpus or hours != 0
        self._hours.append(hours)

    def estimate(self) -> Estimate:
        known = [amount for amount in self._hours if amount is not None]
        return Estimate(
            gpu_hours_expected=None if self._used_gpus else 0.0,
            gpu_hours_worst=round(math.fsum(known), 6) if len(known) == len(self._hours) else None,
        )


def gpus_of(spec: Mapping[str, Json]) -> int:
    """Return how many GPUs a run holds: none where its type is CPU."""
    gpus = spec.get("gpus")
    return 0 if spec.get("type") == "CPU" or not isinstance(gpus, int) else gpus


def worst_hours(spec: Mapping[str, Json]) -> float | None:
    """Return the GPU hours of a launch that takes all the time it may, as often as it may; None
    where no timeout says, and of a driver that asks a Ray cluster for GPUs itself."""
    ray = spec.get("ray")
    if isinstance(ray, Mapping) and ray.get("cluster") is not None:
        return None
    gpus = gpus_of(spec)
    if gpus == 0:
        return 0.0
    if "timeout" not in spec:
        return None
    limit = Duration.read(spec["timeout"]).seconds
    retry = spec.get("retry")
    restarts = retry.get("max", 0) if isinstance(retry, Mapping) else 0
    return gpus * limit / 3600 * (1 + restarts) if isinstance(restarts, int) else None
