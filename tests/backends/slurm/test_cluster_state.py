"""What Slurm says, in the forms that its versions have."""

import pytest

from sgpu_decl.backends.slurm.cluster_state import (
    SlurmJob,
    gpu_type,
    parse_gpus,
    parse_jobs,
    parse_nodes,
    parse_partitions,
    parse_start,
)
from sgpu_decl.model.gpu import GPUType

# The fields of one node, as versions write them: GPUs without a type and none that are used in
# 17.11, none at all and no CPUEfctv in 20.11, the type of a card by NVML in 23.02, a node of a
# cloud in 24.11.
NODES = {
    "17.11": (
        "NodeName=gpu1 Arch=x86_64 CoresPerSocket=12 CPUAlloc=2 CPUErr=0 CPUTot=24 CPULoad=1.55 "
        "AvailableFeatures=skylake,v100 ActiveFeatures=skylake,v100 Gres=gpu:2 GresDrain=N/A "
        "GresUsed=gpu:1 NodeAddr=gpu1 NodeHostName=gpu1 Version=17.11 OS=Linux 3.10.0 #1 SMP Fri "
        "RealMemory=95307 AllocMem=7100 FreeMem=82349 Sockets=2 Boards=1 State=MIXED "
        "ThreadsPerCore=1 TmpDisk=0 Weight=2040 Partitions=gpuv100 CfgTRES=cpu=24,mem=95307M"
    ),
    "20.11": (
        "NodeName=c7 Arch=x86_64 CoresPerSocket=8  CPUAlloc=16 CPUTot=16 CPULoad=16.15 "
        "AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) GresDrain=N/A GresUsed=gpu:0 "
        "Version=20.11.8 OS=Linux 3.10.0-1160.el7.x86_64 #1 SMP  RealMemory=250000 "
        "State=ALLOCATED ThreadsPerCore=1 Partitions=all,long  BootTime=2021-10-25T15:48:07"
    ),
    "22.05": (
        "NodeName=n1 Arch=x86_64 CoresPerSocket=16  CPUAlloc=8 CPUEfctv=14 CPUTot=16 CPULoad=1.85 "
        "AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:h100:4(S:0-1) GresDrain=N/A "
        "GresUsed=gpu:h100:2(IDX:0,2) NodeAddr=127.0.0.1 NodeHostName=vm Version=22.05.8 OS=Linux "
        "6.18 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=4000 State=IDLE+DRAIN ThreadsPerCore=1 "
        "Owner=N/A Partitions=main,low  CfgTRES=cpu=16,mem=4000M AllocTRES= Reason=disk State=IDLE "
        "Gres=gpu:h100:99 [root@2026-11-30T15:15:44]"
    ),
    "23.02": (
        "NodeName=g3 Arch=x86_64 CPUAlloc=0 CPUEfctv=64 CPUTot=64 ActiveFeatures=a100,ib "
        "Gres=gpu:nvidia_a100-sxm4-80gb:4(S:0-3),gpu:a100_3g.40gb:2 "
        "GresUsed=gpu:nvidia_a100-sxm4-80gb:1(IDX:3),gpu:a100_3g.40gb:0(IDX:N/A) "
        "Version=23.02.6 State=DOWN*+NOT_RESPONDING Partitions=gpu"
    ),
    "24.11": (
        "NodeName=cloud-1 Arch=x86_64 CPUAlloc=0 CPUEfctv=32 CPUTot=32 ActiveFeatures=static,efa "
        "Gres=gpu:h200:8 GresDrain=N/A GresUsed=gpu:h200:0 Version=24.11.7 "
        "State=IDLE+CLOUD+POWERED_DOWN Partitions=gpu ResumeAfterTime=None CfgTRES=cpu=32 "
        "InstanceId=i-1 InstanceType=p5en.48xlarge"
    ),
}


def test_nodes_of_many_versions_are_read() -> None:
    nodes = parse_nodes("\n".join(NODES.values()) + "\n\n")

    seen = [(node.name, node.cpus, dict(node.gpus), dict(node.used), node.works) for node in nodes]
    assert seen == [
        ("gpu1", 24, {"": 2}, {"": 1}, True),
        ("c7", 16, {}, {"": 0}, True),
        ("n1", 14, {"h100": 4}, {"h100": 2}, False),
        (
            "g3", 64, {"nvidia_a100-sxm4-80gb": 4, "a100_3g.40gb": 2},
            {"nvidia_a100-sxm4-80gb": 1, "a100_3g.40gb": 0}, False,
        ),
        ("cloud-1", 32, {"h200": 8}, {"h200": 0}, True),
    ]  # fmt: skip
    assert nodes[0].features == {"skylake", "v100"}
    assert nodes[2].partitions == {"main", "low"}


def test_the_free_gpus_of_a_node_that_does_not_work_are_none() -> None:
    working, _, drained, *_ = parse_nodes("\n".join(NODES.values()))

    assert (working.free(""), drained.free("h100")) == (1, 0)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("(null)", {}),
        ("gpu", {"": 1}),
        ("gpu:2080ti:8", {"2080ti": 8}),
        ("gpu:3090:4", {"3090": 4}),
        ("craynetwork:4,gpu:tesla:no_consume:2", {"tesla": 2}),
        ("pfsdir:scratch:1,shard:h100:8,gpu:h100:2(S:0,1)", {"h100": 2}),
    ],
)
def test_gpus_are_read_with_and_without_their_type(text: str, gpus: dict[str, int]) -> None:
    assert parse_gpus(text) == gpus


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("h100", GPUType.H100),
        ("nvidia_a100-sxm4-80gb", GPUType.A100_80GB),
        ("tesla_v100-sxm2-32gb", GPUType.V100_32GB),
        ("nvidia_h100_80gb_hbm3", GPUType.H100),
        ("a100_3g.20gb", None),  # a part of one
        ("hopper", None),
    ],
)
def test_a_type_of_gpu_is_known_by_what_administrators_and_nvml_call_it(
    name: str, kind: GPUType | None
) -> None:
    assert gpu_type(name) is kind


def test_partitions_have_their_limits() -> None:
    text = (
        "PartitionName=main AllowGroups=ALL Default=YES DefaultTime=NONE MaxTime=UNLIMITED "
        "Nodes=n[1-2] State=UP TotalCPUs=32\n"
        "PartitionName=low Default=NO DefaultTime=00:30:00 MaxTime=7-01:00:00 State=DRAIN\n"
    )

    main, low = parse_partitions(text)

    assert (main.default, main.works, main.usual, main.longest) == (True, True, None, None)
    assert (low.default, low.works, low.usual, low.longest) == (False, False, 1800, 608_400)


# Partitions as clusters have shown them in public, without most fields that are not read:
# giovtorres/docker-centos7-slurm (2018); the campus cluster of Illinois (2022); a user guide with
# `MaxCPUsPerSocket`, which is new in 23.02, here with lists of names as slurm.conf has them;
# skypilot-org/skypilot, tests of its Slurm adaptor, with `ExclusiveTopo`, which is new in 24.05.
PARTITIONS = (
    "PartitionName=normal AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL "
    "Default=YES QoS=N/A DefaultTime=5-00:00:00 DisableRootJobs=NO MaxNodes=1 MaxTime=5-00:00:00 "
    "MinNodes=1 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=c[1-5] Priority=50 State=UP\n"
    "PartitionName=stat AllowGroups=acc-stat,acc-stat-qu AllowAccounts=ALL AllowQos=ALL "
    "AllocNodes=ALL Default=NO QoS=N/A DefaultTime=00:30:00 MaxNodes=UNLIMITED "
    "MaxTime=14-00:00:00 JobDefaults=(null) State=UP\n"
    "PartitionName=h100 AllowGroups=ALL AllowAccounts=vision,speech DenyQos=low,debug "
    "Default=NO QoS=gpu DefaultTime=NONE MaxNodes=3 MaxTime=3-00:00:00 MaxCPUsPerSocket=UNLIMITED "
    "State=UP TRES=cpu=1984,node=16,billing=24320,gres/gpu=64,gres/gpu:h100=64\n"
    "PartitionName=dev AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A "
    "ExclusiveTopo=NO NodeSets=ALL MaxNodes=UNLIMITED MaxTime=UNLIMITED State=UP\n"
)


def test_partitions_of_many_versions_say_whom_they_take() -> None:
    normal, stat, h100, dev = parse_partitions(PARTITIONS)

    assert [one.nodes for one in (normal, stat, h100, dev)] == [1, None, 3, None]
    assert (h100.qos, dev.qos) == ("gpu", "")
    assert h100.allowed == {"account": {"vision", "speech"}}
    assert h100.denied == {"qos": {"low", "debug"}}
    assert (normal.allowed, dev.denied) == ({}, {})


JOB_5 = "sbatch: Job 5 to start at"
RESOURCES = "using 8 processors on nodes g[03-04] in partition gpu\n"


# `Job [0-9]+ to start at [0-9]+` is what Slurm's own tests expect (testsuite, test_test_only); the
# forms are those in 22.05's `sbatch`, and the letter that newer versions put behind the time.
@pytest.mark.parametrize(
    ("said", "start"),
    [
        (f"{JOB_5} 1796065512 {RESOURCES}", 1_796_065_512),
        (f"{JOB_5} 1790738146 a {RESOURCES}", 1_790_738_146),
        (f"{JOB_5} 1790738146 on cluster c2 {RESOURCES}", 1_790_738_146),
        ("allocation failure: Requested node configuration is not available\n", None),
        (f"{JOB_5} 2019-08-06T10:54:01 {RESOURCES}", None),
    ],
)
def test_the_start_that_slurm_predicts_is_read(said: str, start: int | None) -> None:
    """See `slurm-test-only`."""
    assert parse_start(said) == start


def test_jobs_are_read_and_lines_that_are_none_are_not() -> None:
    text = "slurm_load_jobs error\n7|a-1|PENDING|Priority|1700000000|N/A\n8|a-1|FAILED|None|1|2\n"

    assert parse_jobs(text) == (
        SlurmJob(id="7", name="a-1", state="PENDING", reason="Priority", started_at=1_700_000_000),
        SlurmJob(id="8", name="a-1", state="FAILED", reason="None", started_at=1, ended_at=2),
    )


def test_jobs_of_accounting_have_the_first_word_of_their_state() -> None:
    """As `sacct --allocations --noheader --parsable2` of a public cluster has said it (2026)."""
    text = (
        "301099|loop|TIMEOUT|None|1788547933|1788632544\n"
        "314831|loop|CANCELLED by 30154|None|None|1788699549\n"
    )

    timeout, cancelled = parse_jobs(text)

    assert (timeout.state, timeout.ended_at) == ("TIMEOUT", 1_788_632_544)
    assert (cancelled.state, cancelled.started_at) == ("CANCELLED", None)
