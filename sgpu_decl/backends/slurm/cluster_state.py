"""What Slurm says of a cluster, parsed: `scontrol --oneliner --details show node`, the same of
partitions, and `squeue` with a format of ours.

These texts are the same from 17.11 to 25.x but for fields that were added; the JSON of the same
commands has another schema with most releases (https://slurm.schedmd.com/rest_clients.html).
"""

import re
from collections.abc import Mapping
from dataclasses import field

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import GPUType, type_of_device, type_of_name

JOB_FORMAT = "%i|%j|%T|%r|%S|%e"
"""What `parse_jobs` reads, with SLURM_TIME_FORMAT=%s: https://slurm.schedmd.com/squeue.html"""
ACCOUNTED = "JobIDRaw,JobName,State,Reason,Start,End"
"""The same columns in accounting, with `--parsable2`: https://slurm.schedmd.com/sacct.html"""

_FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z_]+)=(\S*)")
_GPUS = re.compile(r"(?:^|,)gpu(?::([^:,(]+?))??(?::no_consume)?(?::(\d+))?(?=[(,]|$)")
_INDEXES = re.compile(r"\([^)]*\)")
_GONE = frozenset({"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "ERROR", "FUTURE", "UNKNOWN",
                   "NOT_RESPONDING", "MAINT", "RESERVED", "INVAL", "INVALID_REG"})  # fmt: skip
_START = re.compile(r"\bto start at (\d{9,11})\b")
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node. `gpus` counts its GPUs by what Slurm calls their type, `""` where it has no name for
    it, and `used` those that jobs hold. `works` says that jobs can start there."""

    name: str
    cpus: int
    cpus_used: int
    gpus: Mapping[str, int]
    used: Mapping[str, int]
    features: frozenset[str]
    partitions: frozenset[str]
    works: bool

    def free(self, name: str) -> int:
        """GPUs of a type that no job holds."""
        return max(0, self.gpus.get(name, 0) - self.used.get(name, 0)) if self.works else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPartition:
    """A partition. Its limits are in seconds: of what jobs may ask for, and of those that ask for
    nothing; None for no limit. `nodes` is how many a job may have, `qos` the QOS whose limits it
    has, `""` for none. `allowed` and `denied` are names of accounts and QOS, by `account` and
    `qos`; a kind that is not in `allowed` is free."""

    name: str
    default: bool
    works: bool
    longest: int | None
    usual: int | None
    nodes: int | None = None
    qos: str = ""
    allowed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    denied: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job, with the name of its `state` and of the `reason` for it. `started_at` of a job that
    waits is when Slurm expects it to start. Times are seconds since 1970, None where there are
    none."""

    id: str
    name: str
    state: str
    reason: str = ""
    started_at: int | None = None
    ended_at: int | None = None

    @property
    def task(self) -> str:
        """Which task of an array it is, `_7`; empty for a job that is alone."""
        return "".join(self.id.partition("_")[1:])


def parse_nodes(text: str) -> tuple[SlurmNode, ...]:
    """The nodes that Slurm lists."""
    return tuple(_node(fields) for fields in _records(text, "NodeName"))


def parse_partitions(text: str) -> tuple[SlurmPartition, ...]:
    """The partitions that Slurm lists."""
    return tuple(
        SlurmPartition(
            name=fields["PartitionName"],
            default=fields.get("Default") == "YES",
            works=fields.get("State") == "UP",
            longest=parse_seconds(fields.get("MaxTime", "")),
            usual=parse_seconds(fields.get("DefaultTime", "")),
            nodes=_number(fields.get("MaxNodes", "")),
            qos=fields.get("QoS", "N/A").replace("N/A", ""),
            allowed=_names(fields, "Allow"),
            denied=_names(fields, "Deny"),
        )
        for fields in _records(text, "PartitionName")
    )


def parse_start(text: str) -> int | None:
    """When a job would start, in seconds since 1970: what `sbatch --test-only` says with
    SLURM_TIME_FORMAT=%s (https://slurm.schedmd.com/sbatch.html#OPT_test-only). A letter may follow
    the time, and the name of a cluster. Evidence: E4."""
    match = _START.search(text)
    return int(match[1]) if match is not None else None


def parse_jobs(text: str) -> tuple[SlurmJob, ...]:
    """The jobs in lines of `JOB_FORMAT`, or of `ACCOUNTED`, which has `CANCELLED by 1000`."""
    rows = [
        line.split("|") for line in text.split("\n") if line.count("|") == JOB_FORMAT.count("|")
    ]
    return tuple(
        SlurmJob(
            id=row[0], name=row[1], state=row[2].partition(" ")[0], reason=row[3],
            started_at=_number(row[4]), ended_at=_number(row[5]),
        )
        for row in rows
    )  # fmt: skip


def gpu_type(name: str) -> GPUType | None:
    """The type of GPU that Slurm calls by a name: what an administrator wrote, or the name that
    NVML has (https://slurm.schedmd.com/gres.html#AutoDetect); None if it is none that we know, such
    as a part of a GPU."""
    return type_of_name(name) or type_of_device(name.replace("_", " "))


def parse_gpus(text: str) -> dict[str, int]:
    """GPUs by the names of their types: `gpu:h100:4(S:0-1),gpu:2`."""
    found: dict[str, int] = {}
    for kind, count in _GPUS.findall(_INDEXES.sub("", text)):
        found[kind] = found.get(kind, 0) + int(count or 1)
    return found


def _node(fields: Mapping[str, str]) -> SlurmNode:
    gpus = parse_gpus(fields.get("Gres", ""))
    used = parse_gpus(fields.get("GresUsed", ""))
    total = sum(used.values())
    if len(gpus) == 1 and total:
        used = dict.fromkeys(gpus, total)  # Slurm may leave out the type
    states = re.split(r"[+]", fields.get("State", "").replace("*", "+NOT_RESPONDING"))
    return SlurmNode(
        name=fields["NodeName"],
        cpus=int(fields.get("CPUEfctv") or fields.get("CPUTot") or 0),
        cpus_used=int(fields.get("CPUAlloc") or 0),
        gpus=gpus,
        used=used,
        features=frozenset(fields.get("ActiveFeatures", "").split(",")) - {"(null)", ""},
        partitions=frozenset(fields.get("Partitions", "").split(",")) - {""},
        works=_GONE.isdisjoint(states),
    )


def _names(fields: Mapping[str, str], verb: str) -> dict[str, frozenset[str]]:
    """The accounts and QOS in `AllowAccounts` and `AllowQos`, or in those of `Deny`."""
    written = {"account": fields.get(f"{verb}Accounts", ""), "qos": fields.get(f"{verb}Qos", "")}
    return {
        kind: frozenset(names.split(","))
        for kind, names in written.items()
        if names not in ("", "ALL", "(null)")
    }


def _records(text: str, first: str) -> list[dict[str, str]]:
    """The fields of each line. Free text comes last: what looks like a field there is none."""
    records = []
    for line in text.split("\n"):
        fields: dict[str, str] = {}
        for name, value in _FIELD.findall(line):
            fields.setdefault(name, value)
        if first in fields:
            records.append(fields)
    return records


def parse_seconds(text: str) -> int | None:
    """A time limit, `01:00:00` or `7-01:00:00`, in seconds; None for one that is none."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None  # UNLIMITED, NONE
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None
