"""What accounting allows a job: limits of QOS and associations, read from `sacctmgr`, and those of
partitions (https://slurm.schedmd.com/resource_limits.html).

`sacctmgr --parsable2` heads its columns by names that versions 19.05 to 25.x share; a column that
a version lacks has no limit.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from sgpu_decl.backends.slurm.cluster_state import SlurmPartition, parse_seconds
from sgpu_decl.frozen_dataclass import dataclass

QOS = ("Name", "Flags", "GrpTRES", "MaxTRES", "MaxTRESPU", "MaxWall")
ASSOCIATION = ("Account", "Partition", "QOS", "DefaultQOS", "GrpTRES", "MaxTRES", "MaxWall",
               "ParentName")  # fmt: skip
"""The columns to ask for, as `format=` takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmLimits:
    """The limits that one place sets; None and missing names for no limit.

    Attributes:
        owner: in words, whose limits they are: "the QOS `high`".
        wall: seconds of a job.
        most: by the name of a resource (`gres/gpu`, `gres/gpu:h100`, `node`, `cpu`), how much a job
            may ask for: the smallest of what a job, a user and all jobs together may have.
        flags: of a QOS.
        above: the limits of the accounts above an association, which hold, too.
    """

    owner: str
    wall: int | None = None
    most: Mapping[str, int] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    above: tuple["SlurmLimits", ...] = ()

    @property
    def places(self) -> tuple["SlurmLimits", ...]:
        """It and those above, which hold together."""
        return (self, *self.above)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmAssociation:
    """What a user may use: an account, in one partition or in all (`""`), with these QOS."""

    account: str
    partition: str
    qos: tuple[str, ...]
    default_qos: str
    limits: SlurmLimits


def parse_qos(text: str) -> dict[str, SlurmLimits]:
    """The QOS by name, from `sacctmgr show qos`."""
    return {
        row["Name"]: _limits(f"the QOS `{row['Name']}`", row)
        for row in _rows(text)
        if row.get("Name")
    }


def parse_associations(text: str, accounts: str = "") -> tuple[SlurmAssociation, ...]:
    """The associations of a user, from `sacctmgr show associations`; of `accounts`, which says the
    same of those without a user, the limits of the accounts above."""
    known = {row["Account"]: row for row in _rows(accounts) if row.get("Account")}

    def above(name: str) -> Iterator[SlurmLimits]:
        left = dict(known)  # each once, whatever is said
        while row := left.pop(name, None):
            yield _limits(f"the account `{name}`", row)
            name = row.get("ParentName", "")

    return tuple(
        SlurmAssociation(
            account=row["Account"],
            partition=row.get("Partition", ""),
            qos=tuple(filter(None, row.get("QOS", "").split(","))),
            # Without a default, the only one: `assoc_mgr_get_default_qos_info` of
            # https://github.com/SchedMD/slurm/blob/master/src/common/assoc_mgr.c
            default_qos=row.get("Def QOS") or row.get("QOS", ""),
            limits=replace(
                _limits(f"the account `{row['Account']}`", row), above=tuple(above(row["Account"]))
            ),
        )
        for row in _rows(text)
        if row.get("Account")
    )


def setting(config: str, name: str) -> str:
    """A setting of `scontrol show config`; empty where a version has none of that name."""
    found = re.search(rf"^{name}\s*= *(.*)$", config, re.MULTILINE)
    return found[1].strip() if found else ""


def enforces_limits(config: str) -> bool:
    """Whether limits hold: without it they are numbers alone
    (https://slurm.schedmd.com/slurm.conf.html#OPT_AccountingStorageEnforce)."""
    enforced = setting(config, "AccountingStorageEnforce").lower().split(",")
    return not {"limits", "safe", "all"}.isdisjoint(enforced)


def in_order(
    partition: SlurmPartition,
    qos: str | None,
    account: str | None,
    associations: Sequence[SlurmAssociation],
    known: Mapping[str, SlurmLimits],
) -> list[SlurmLimits]:
    """The limits for a job, those that decide first: of the QOS of its partition, of its own QOS,
    of its association. Where a QOS has the flag `OverPartQOS`, it comes before that of the
    partition (https://slurm.schedmd.com/resource_limits.html#hierarchy). Evidence: E5."""
    mine = [
        one
        for one in associations
        if one.partition in ("", partition.name) and account in (None, one.account)
    ]
    mine.sort(key=lambda one: one.partition == "")
    found = mine[:1] if account is not None or len({one.account for one in mine}) == 1 else []
    own = known.get(qos or next((one.default_qos for one in found), ""))
    first = known.get(partition.qos)
    order = [own, first] if own is not None and "OverPartQOS" in own.flags else [first, own]
    return [*filter(None, order), *(one.limits for one in found)]


def exceeded(resources: Mapping[str, int], limits: Sequence[SlurmLimits]) -> Iterator[str]:
    """In words, what of the `resources` of a job it may never get. The first place that has a
    limit decides."""
    for name, amount in sorted(resources.items()):
        first = next((one for one in limits if any(name in at.most for at in one.places)), None)
        places = [at for at in first.places if name in at.most] if first is not None else []
        place = min(places, key=lambda one: one.most[name], default=None)
        if place is not None and amount > place.most[name]:
            what = name.removeprefix("gres/").replace("gpu:", "GPUs of the type ")
            what = {"gpu": "GPUs", "node": "nodes", "cpu": "processors"}.get(what, what)
            yield f"needs {amount} {what}, and {place.owner} allows {place.most[name]}"


def longest(partition: SlurmPartition, limits: Sequence[SlurmLimits]) -> tuple[int, str] | None:
    """The seconds that a job may ask for, and whose limit that is; None for no limit."""
    place = next((one for one in limits if one.wall is not None), None)
    found = [(place.wall, place.owner)] if place is not None and place.wall is not None else []
    freed = any("PartitionTimeLimit" in one.flags for one in limits)
    if partition.longest is not None and not (freed and found):
        found.append((partition.longest, f"`{partition.name}`"))
    return min(found, default=None)


def _limits(owner: str, row: Mapping[str, str]) -> SlurmLimits:
    most: dict[str, int] = {}
    for column in ("MaxTRES", "MaxTRESPU", "GrpTRES"):
        for item in row.get(column, "").split(","):
            name, _, amount = item.partition("=")
            if amount.isdigit():
                most[name] = min(int(amount), most.get(name, int(amount)))
    return SlurmLimits(
        owner=owner,
        wall=parse_seconds(row.get("MaxWall", "")),
        most=most,
        flags=frozenset(filter(None, row.get("Flags", "").split(","))),
    )


def _rows(text: str) -> Iterator[dict[str, str]]:
    """The lines under the line of names."""
    names: list[str] = []
    for line in text.split("\n"):
        cells = line.split("|")
        if not names:
            names = cells if len(cells) > 1 else []
        elif len(cells) >= len(names):
            yield dict(zip(names, cells, strict=False))
