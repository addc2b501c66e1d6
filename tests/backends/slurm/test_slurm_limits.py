"""Limits that accounting enforces, from answers that were recorded at clusters."""

from sgpu_decl.backends.slurm.cluster_state import SlurmPartition
from sgpu_decl.backends.slurm.slurm_limits import (
    SlurmLimits,
    enforces_limits,
    exceeded,
    in_order,
    longest,
    parse_associations,
    parse_qos,
    setting,
)

# What `sacctmgr --parsable2 show qos` says without `format`: of NERSC's Perlmutter, as the tests of
# the public project `lightcone` recorded it; and the columns of a version without
# `PreemptExemptTime`, as those of `cshuji-slurm` did.
PERLMUTTER = """\
Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageThres|UsageFactor|GrpTRES|\
GrpTRESMins|GrpTRESRunMins|GrpJobs|GrpSubmit|GrpWall|MaxTRES|MaxTRESPerNode|MaxTRESMins|MaxWall|\
MaxTRESPU|MaxJobsPU|MaxSubmitPU|MaxTRESPA|MaxTRESRunMinsPA|MaxTRESRunMinsPU|MaxJobsPA|MaxSubmitPA|\
MinTRES
normal|0|00:00:00|||cluster|||1.000000|||||||||||||||||||
gpu_debug|69119|00:01:00|debug_preempt,sparewarmer||cluster|DenyOnLimit||1.000000|||||||node=8|||\
00:30:00||2|5||||||
gpu_shared|67679|00:00:00|debug_preempt,sparewarmer||cluster|DenyOnLimit||1.000000|||||||\
gres/gpu=2,node=1|||2-00:00:00|||5000||||||
"""
OLDER = """\
Name|Priority|GraceTime|Preempt|PreemptMode|Flags|UsageThres|UsageFactor|GrpTRES|GrpTRESMins|\
GrpTRESRunMins|GrpJobs|GrpSubmit|GrpWall|MaxTRES|MaxTRESPerNode|MaxTRESMins|MaxWall|MaxTRESPU|\
MaxJobsPU|MaxSubmitPU|MaxTRESPA|MaxJobsPA|MaxSubmitPA|MinTRES
rebug|0|00:00:00||cluster|DenyOnLimit,NoDecay||1.000000|cpu=32|billing=2000|||10||cpu=8,mem=32G|||\
01:00:00|cpu=16|2|4||||
"""
# Stanford's FarmShare, as a public note of 2026 has it.
FARMSHARE = """\
Cluster|Account|User|Partition|QOS|Def QOS|MaxJobs|MaxSubmit|MaxWall|MaxTRES|GrpTRES
farmshare|operator|ann||bigmem,gpu,long,normal|normal|||||
farmshare|operator|ann|gpu|gpu,long|gpu||20|1-00:00:00||gres/gpu=6
"""


def partition(**fields: object) -> SlurmPartition:
    known = {"name": "gpu", "default": True, "works": True, "longest": 172_800, "usual": None}
    return SlurmPartition(**{**known, **fields})  # type: ignore[arg-type]


def test_limits_of_qos_are_read_by_the_names_of_their_columns() -> None:
    new, old = parse_qos(PERLMUTTER), parse_qos(OLDER)

    assert new["normal"] == SlurmLimits(owner="the QOS `normal`")
    debug = new["gpu_debug"]
    assert (debug.wall, debug.most) == (1800, {"node": 8})
    assert new["gpu_shared"].most == {"gres/gpu": 2, "node": 1}
    assert (old["rebug"].most, old["rebug"].wall) == ({"cpu": 8}, 3600)
    assert parse_qos("sacctmgr: error\n") == {}


def test_what_a_job_may_never_get_is_said_with_who_forbids_it() -> None:
    limits = [parse_qos(PERLMUTTER)["gpu_shared"]]

    found = list(exceeded({"gres/gpu": 4, "gres/gpu:h100": 4, "node": 2, "cpu": 99}, limits))

    assert found == [
        "needs 4 GPUs, and the QOS `gpu_shared` allows 2",
        "needs 2 nodes, and the QOS `gpu_shared` allows 1",
    ]
    assert list(exceeded({"gres/gpu": 2, "node": 1}, limits)) == []


def test_the_first_place_that_has_a_limit_decides() -> None:
    """See `slurm-limit-order`. An association of one partition comes before that of all."""
    mine = parse_associations(FARMSHARE)
    known = {
        "p": SlurmLimits(owner="p", most={"node": 9}),
        "long": SlurmLimits(owner="long", most={"node": 1, "cpu": 1}, wall=604_800),
        "gpu": SlurmLimits(owner="gpu"),
        "first": SlurmLimits(owner="first", flags=frozenset({"OverPartQOS"})),
    }

    def owners(qos: str | None, where: SlurmPartition, account: str | None = None) -> list[str]:
        return [one.owner for one in in_order(where, qos, account, mine, known)]

    own = "the account `operator`"
    assert owners("long", partition(qos="p")) == ["p", "long", own]
    assert owners("first", partition(qos="p")) == ["first", "p", own]
    assert owners(None, partition()) == ["gpu", own]
    assert owners(None, partition(name="cpu"), "other") == []
    order = in_order(partition(qos="p"), "long", None, mine, known)
    assert list(exceeded({"node": 5, "cpu": 2}, order)) == ["needs 2 processors, and long allows 1"]
    assert order[2].most == {"gres/gpu": 6}


# slurmdbd 22.05 of Debian, with `user=root` and with `user=`.
MINE = """\
Account|Partition|QOS|Def QOS|GrpTRES|MaxTRES|MaxWall|ParentName
sub||normal|||||
root||normal|||||
"""
ACCOUNTS = """\
Account|Partition|QOS|Def QOS|GrpTRES|MaxTRES|MaxWall|ParentName
root||normal|||||
vision||normal||gres/gpu=1|||root
sub||normal||gres/gpu=4,node=2|||vision
"""


def test_accounts_above_limit_a_job_together_and_the_only_qos_is_its_own() -> None:
    known = {"normal": SlurmLimits(owner="q", wall=7200)}
    order = in_order(partition(), None, "sub", parse_associations(MINE, ACCOUNTS), known)

    assert list(exceeded({"gres/gpu": 2, "node": 3, "cpu": 99}, order)) == [
        "needs 2 GPUs, and the account `vision` allows 1",
        "needs 3 nodes, and the account `sub` allows 2",
    ]
    assert longest(partition(), order) == (7200, "q")


def test_the_time_of_a_job_is_the_least_of_its_partition_and_its_accounting() -> None:
    week = SlurmLimits(owner="the QOS `long`", wall=604_800)
    freed = SlurmLimits(owner="q", wall=604_800, flags=frozenset({"PartitionTimeLimit"}))
    hour = SlurmLimits(owner="the account `a`", wall=3600)

    assert longest(partition(), []) == (172_800, "`gpu`")
    assert longest(partition(), [week, hour]) == (172_800, "`gpu`")
    assert longest(partition(), [hour]) == (3600, "the account `a`")
    assert longest(partition(), [freed]) == (604_800, "q")
    assert longest(partition(longest=None), []) is None


def test_limits_count_where_slurm_enforces_them() -> None:
    assert enforces_limits("A = 1\nAccountingStorageEnforce = associations,limits,qos,safe\n")
    assert not enforces_limits("AccountingStorageEnforce = associations\n")
    assert not enforces_limits("AccountingStorageEnforce = none\n")
    assert not enforces_limits("")
    assert setting("MaxArraySize            = 1001\nMax = 2", "MaxArraySize") == "1001"
