"""What a plan may cost at most: arithmetic over limits that the user set. Unknown stays unknown."""

import math
import re
from collections.abc import Mapping

from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Action, Change, Estimate

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")


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
        self._used_gpus = self._used_gpus or gpus_of(spec) != 0
        self._hours.append(worst_hours(spec))

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


def seconds_of(value: Json) -> float | None:
    """Read a duration as the canonical spec has it: seconds, or text such as `6h` or `1h30m`."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str):
        return None
    parts = _PART.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        return None
    return math.fsum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)


def worst_hours(spec: Mapping[str, Json]) -> float | None:
    """Return the GPU hours of a launch that takes all the time it may, as often as it may; None
    where no timeout says."""
    gpus = gpus_of(spec)
    if gpus == 0:
        return 0.0
    limit = seconds_of(spec.get("timeout"))
    if limit is None:
        return None
    retry = spec.get("retry")
    restarts = retry.get("max", 0) if isinstance(retry, Mapping) else 0
    return gpus * limit / 3600 * (1 + restarts) if isinstance(restarts, int) else None
