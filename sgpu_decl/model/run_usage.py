"""What an attempt used of what it held, and that in words: `used 11 % of 8 H100 and at most 9 of
80 GB: 1 GPU would do`. Slurm's `seff` and `jobstats` say it so after a job:
https://github.com/PrincetonUniversity/jobstats."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import ceil, isfinite

from sgpu_decl.diagnostics.amounts import duration, size
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import type_of_device

__all__ = [
    "MEASURED",
    "RunIdle",
    "RunUsage",
    "idle_in",
    "idle_words",
    "joined_usage",
    "usage_advice",
    "usage_in",
    "usage_words",
]

MEASURED = 10.0  # seconds: a shorter run only starts
_ENOUGH = 60.0  # seconds: shorter runs start more than they compute
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUsage:
    """What the ranks of an attempt used on the nodes that were measured.

    Attributes:
        seconds: how long that was, on the node that was measured longest.
        nodes: how many nodes were measured.
        processors: how many processors the ranks kept busy together: the mean over the time.
        processors_there: the processors that they could use.
        memory: MiB that the ranks of one node had in memory together, at most.
        memory_there: MiB of memory of that node, or of the control group.
        gpus: how many GPUs were measured.
        gpu_name: what their driver calls them.
        gpu_percent: the share of time in which a GPU ran a kernel, in percent: the mean.
        gpus_unused: how many of them never ran one.
        gpu_memory: MiB that were used of one GPU, at most.
        gpu_memory_there: MiB of memory of that GPU.
    """

    seconds: float
    nodes: int = 1
    processors: float | None = None
    processors_there: float | None = None
    memory: int | None = None
    memory_there: int | None = None
    gpus: int = 0
    gpu_name: str | None = None
    gpu_percent: float | None = None
    gpus_unused: int = 0
    gpu_memory: int | None = None
    gpu_memory_there: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdle:
    """That the ranks of node 0 use too little, by the mean over the last `seconds`. `of` says of
    what: `gpus`, or `processors` where no GPU could be measured. `count` of them, at least one for
    each rank, were each used `percent` at most, which is less than the `limit`, in percent."""

    of: str
    count: int
    percent: float
    limit: float
    seconds: float


def idle_in(item: object) -> RunIdle | None:
    """What a `status` object tells of idleness; None where it tells of none."""
    if not isinstance(item, Mapping) or item.get("of") not in ("gpus", "processors"):
        return None
    numbers = [item.get(name) for name in ("count", "percent", "limit", "seconds")]
    if not all(isinstance(one, int | float) and isfinite(one) for one in numbers):
        return None
    return RunIdle(**{one.name: item[one.name] for one in fields(RunIdle)})


def idle_words(idle: RunIdle) -> str:
    """`8 GPUs were idle: used 0.3 % in the last 20 m`."""
    what = "GPU" if idle.of == "gpus" else "rank"
    named = f"1 {what} is" if idle.count == 1 else f"{idle.count:,} {what}s are"
    used = "used" if idle.of == "gpus" else "used a processor"
    return f"{named} idle: {used} {_percent(idle.percent)} in the last {duration(idle.seconds)}"


def usage_in(item: object) -> RunUsage | None:
    """What a `status` object tells of use; None where it tells of none. Ranks could have written
    it."""
    if not isinstance(item, Mapping):
        return None
    known = {one.name: item[one.name] for one in fields(RunUsage) if one.name in item}
    name = known.pop("gpu_name", None)
    numbers = known.values()
    if not isinstance(known.get("seconds"), int | float) or not isinstance(name, str | None):
        return None
    if not all(isinstance(one, int | float | None) for one in numbers):
        return None
    if not all(one is None or (isfinite(one) and one >= 0) for one in numbers):
        return None
    whole = ("nodes", "gpus", "gpus_unused")
    if not all(isinstance(known.get(count, 0), int) for count in whole):
        return None
    return RunUsage(gpu_name=name, **known)


def joined_usage(several: Sequence[RunUsage]) -> RunUsage:
    """What attempts used that held the same: means by their time, and peaks."""
    first = several[0]
    memory = max(several, key=lambda one: one.memory or -1)
    gpu_memory = max(several, key=lambda one: one.gpu_memory or -1)
    return RunUsage(
        seconds=sum(one.seconds for one in several),
        nodes=first.nodes,
        processors=_mean([(one.processors, one.seconds) for one in several]),
        processors_there=first.processors_there,
        memory=memory.memory,
        memory_there=memory.memory_there,
        gpus=first.gpus,
        gpu_name=first.gpu_name,
        gpu_percent=_mean([(one.gpu_percent, one.seconds) for one in several]),
        gpus_unused=min(one.gpus_unused for one in several),
        gpu_memory=gpu_memory.gpu_memory,
        gpu_memory_there=gpu_memory.gpu_memory_there,
    )


def usage_words(usage: RunUsage) -> str:
    """`used 11 % of 8 H100 and at most 9 of 80 GB`, or what is known of processors where no GPU was
    measured; empty where nothing is known."""
    parts = _gpu_words(usage) if usage.gpus else _processor_words(usage)
    return f"used {' and '.join(parts)}" if parts else ""


def usage_advice(usage: RunUsage) -> str:
    """`1 GPU would do`, if half of the GPUs or less could have done it in the same time: as many as
    their use adds up to, and have room for the memory of all. Empty otherwise, also after a run
    that was too short to tell."""
    if usage.gpus == 0 or usage.gpu_percent is None or usage.seconds < _ENOUGH:
        return ""
    if usage.gpus_unused == usage.gpus:
        return "no GPU was needed"
    if usage.gpu_memory is None or not usage.gpu_memory_there:
        return ""
    busy = ceil(usage.gpus * usage.gpu_percent / 100)
    full = ceil(usage.gpus * usage.gpu_memory / usage.gpu_memory_there)
    needed = max(1, busy, full)
    if 2 * needed > usage.gpus:
        return ""
    return f"{needed} GPU{'' if needed == 1 else 's'} would do"


def _gpu_words(usage: RunUsage) -> list[str]:
    room = None if usage.gpu_memory_there is None else usage.gpu_memory_there * _MIB
    kind = None if usage.gpu_name is None else type_of_device(usage.gpu_name, room)
    named = f"{usage.gpus:,} {kind.name if kind else 'GPU' if usage.gpus == 1 else 'GPUs'}"
    parts = []
    if usage.gpu_percent is not None:
        unused = ""
        if 0 < usage.gpus_unused < usage.gpus:
            unused = f" ({usage.gpus_unused:,} of them never)"
        parts.append(f"{_percent(usage.gpu_percent)} of {named}{unused}")
    if usage.gpu_memory is not None and room:
        there = room / (1 << 30)
        # Vendors count the memory of a type in whole numbers; its driver keeps a part for itself.
        sold = min(kind.memory, key=lambda one: abs(one - there)) if kind and kind.memory else there
        used = usage.gpu_memory * _MIB / room * sold
        amount = f"{used:.0f}" if used >= 1 else f"{used:.1f}"
        of = "" if parts else f" of each of {named}"
        parts.append(f"at most {amount} of {sold:.0f} GB{of}")
    return parts


def _processor_words(usage: RunUsage) -> list[str]:
    parts = []
    if usage.processors is not None:
        there = usage.processors_there
        of = "" if there is None else f" of {there:.3g}"
        parts.append(f"{usage.processors:.1f}{of} processor{'' if (there or 0) == 1 else 's'}")
    if usage.memory is not None:
        of = "" if usage.memory_there is None else f" of {size(usage.memory_there * _MIB)}"
        parts.append(f"at most {size(usage.memory * _MIB)}{of} memory")
    return parts


def _percent(value: float) -> str:
    return "under 1 %" if 0 < value < 0.5 else f"{value:.0f} %"


def _mean(weighted: Sequence[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None
