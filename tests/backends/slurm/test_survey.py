"""What a plan says of a cluster with Slurm."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.config.run import run_config
from sgpu_decl.testing.contracts.backend_bench import BackendBench, until
from sgpu_decl.testing.slurm_cluster import SlurmCluster, slurm_cluster
from tests.backends.slurm.conftest import Benches


def checks(bench: BackendBench, **fields: Any) -> dict[str, dict[str, Any]]:
    """The checks of the plan of a run, by their codes."""
    block = {**bench.case.fields["backend"], **fields.pop("backend", {})}
    bench.declare("value", args={"gate": "."}, backend=block, **{"type": "H100", **fields})
    return {one["id"]: one for one in bench("plan", "-o", "json").data["checks"]}


def test_a_run_that_fits_is_told_its_nodes(bench: BackendBench) -> None:
    found = checks(bench, gpus=4)

    assert [*found] == ["slurm_placement"]
    words = found["slurm_placement"]["summary"]
    assert words.startswith("2 nodes \N{MULTIPLICATION SIGN} 2 ranks")
    assert words.endswith("Slurm would start it at once")


def test_what_never_fits_is_said_with_what_nodes_have(bench: BackendBench) -> None:
    six = checks(bench, gpus=6, backend={"gpus_per_node": 6})["never_fits"]
    other = checks(bench, gpus=2, type="A100")["never_fits"]

    assert six["summary"] == "needs 1 node with 6 H100; n1 has 2, n2 has 2"
    assert other["summary"] == "needs 1 node with 2 A100; Slurm's partition `main` has 4 H100"
    assert other["place"]["column"] > 0


def test_a_run_that_has_to_wait_is_told_what_is_free(
    slurm: SlurmCluster, bench: BackendBench
) -> None:
    job = slurm.command(
        "sbatch", "--parsable", "--gres=gpu:2", "--output=/dev/null", "--wrap", "exec sleep 600"
    ).strip()
    until(lambda: "RUNNING" in slurm.command("squeue", "--format=%T"))

    found = checks(bench, gpus=4)["not_now"]

    slurm.command("scancel", job)
    needs = "needs 2 nodes with 2 H100, and has to wait for room; free now: n2 has 2, n1 has 0"
    assert (found["severity"], found["summary"]) == ("warning", needs)


def test_names_that_slurm_does_not_know_are_refused_with_the_nearest(bench: BackendBench) -> None:
    found = checks(bench, backend={"partition": "mian"})["unknown_slurm_name"]

    assert found["hint"] == "did you mean `main`?"


@pytest.fixture
def accounting(bench: BackendBench, tmp_path: Path) -> None:
    """Programs that say what a cluster with accounting does; a real one needs a database."""
    del bench
    say = {
        "associations": "Account|Partition|QOS|Def QOS|MaxWall|GrpTRES\n"
        "vision||normal,high|normal|2:00:00|\nspeech||normal|normal||\n",
        "qos": "Name|Flags|MaxTRES\nnormal||\nhigh|DenyOnLimit|gres/gpu=2\n",
        "config": "AccountingStorageEnforce = associations,limits,qos\n",
    }
    for name, text in say.items():
        (tmp_path / name).write_text(text)
    program = tmp_path / "bin/sacctmgr"
    program.write_text(f'#!/bin/sh\nexec cat "{tmp_path}/$3"\n')
    program.chmod(0o755)
    own = tmp_path / "bin/scontrol"
    real = shutil.which("scontrol")
    own.write_text(f"""#!/bin/sh
echo "$*" >> {tmp_path}/asked
if [ "$*" = 'show config' ]; then exec cat {tmp_path}/config; fi
exec {real} "$@"
""")
    own.chmod(0o755)


@pytest.mark.usefixtures("accounting")
def test_accounts_and_their_limits_are_checked_where_there_is_accounting(
    bench: BackendBench,
) -> None:
    assert [*checks(bench, backend={"account": "vision", "qos": "high"})] == ["slurm_placement"]
    found = checks(bench, backend={"account": "vison"})["unknown_slurm_name"]
    assert found["hint"] == "did you mean `vision`?"

    over = checks(bench, gpus=4, backend={"account": "vision", "qos": "high"})["over_slurm_limit"]
    assert over["summary"].startswith("needs 4 GPUs, and the QOS `high` allows 2")
    late = checks(bench, timeout="3h", backend={"account": "vision"})["over_time_limit"]
    assert "the account `vision` gives 2 h" in late["summary"]
    block = {"account": "vision", "chain": 2}
    links = checks(bench, timeout="5h", resume="auto", backend=block)["over_time_limit"]
    assert links["hint"] == "write `chain: 3`"


@pytest.mark.usefixtures("accounting")
def test_answers_are_kept_ten_minutes_with_their_age_and_asked_again_by_apply(
    bench: BackendBench, tmp_path: Path
) -> None:
    first = checks(bench)["slurm_placement"]["summary"]
    assert first.endswith("Slurm would start it at once")
    asked = len((tmp_path / "asked").read_text().split("\n"))
    for answer in (Path(bench._environ["XDG_CACHE_HOME"]) / "sgpu/slurm").iterdir():
        os.utime(answer, (time.time() - 120,) * 2)

    assert "(Slurm said so 2 m" in checks(bench)["slurm_placement"]["summary"]
    assert len((tmp_path / "asked").read_text().split("\n")) == asked
    bench.declare("value", args={"gate": "/"})
    bench("apply", "-y", "--detach", "-o", "json")
    assert len((tmp_path / "asked").read_text().split("\n")) > asked


def test_the_gpus_of_a_partition_are_offered(bench: BackendBench) -> None:
    config = run_config("train", bench.unknown().inputs.spec)
    with bench.backend() as backend:
        (offer,) = backend.survey.offers(config.backend)

    assert (offer.type, offer.free, offer.total) == ("H100", 4, 4)
    assert offer.where == "Slurm's partition `main`"


def test_limits_of_a_partition_are_said(bench: BackendBench) -> None:
    assert "over_time_limit" in checks(bench, timeout="1h", backend={"partition": "low"})
    assert "over_time_limit" not in checks(bench, timeout="30m", backend={"partition": "low"})
    assert "partition_time" in checks(bench, backend={"partition": "low"})
    assert "partition_down" in checks(bench, backend={"partition": "closed"})


def test_a_chain_goes_past_the_time_limit_of_a_partition(bench: BackendBench) -> None:
    low = {"partition": "low", "chain": 2}

    assert "over_time_limit" not in checks(bench, timeout="1h", backend=low, resume="auto")
    over = checks(bench, timeout="3h", backend=low, resume="auto")["over_time_limit"]
    assert over["hint"] == "write `chain: 4`"
    assert (
        "resume: auto" in checks(bench, timeout="1h", backend=low)["chain_without_resume"]["hint"]
    )


def test_a_folder_that_this_machine_does_not_have_is_refused(bench: BackendBench) -> None:
    assert "bad_storage" in checks(bench, backend={"storage": "/no/such/folder"})


@pytest.mark.expensive
def test_the_folder_that_nobody_named_is_made_by_the_first_launch(
    bench: BackendBench, tmp_path: Path
) -> None:
    bench._environ["HOME"] = str(tmp_path)
    bench.declare("value", backend={"kind": "slurm"}, args={"gate": str(bench.gate)})

    assert bench.ran()["state"] == "succeeded"
    assert (tmp_path / ".local/share/sgpu/slurm").is_dir()


def test_without_slurm_a_plan_says_where_there_is_one(benches: Benches) -> None:
    cluster = SlurmCluster(folder=Path("/no/such/folder"), keeper=0)
    bench = benches(cluster)
    bench._environ["PATH"] = os.fspath(bench.gate)

    assert "login node" in checks(bench)["no_slurm"]["hint"]


@pytest.mark.expensive
def test_a_controller_that_does_not_answer_makes_a_plan_incomplete(benches: Benches) -> None:
    with slurm_cluster() as cluster:
        bench = benches(cluster)
        for pid in cluster.processes("slurmctld"):
            os.kill(pid, 9)

        found = checks(bench)["slurm_silent"]

        assert found["severity"] == "warning"
        refused = bench("apply", "-y", "--detach", "-o", "json")
        assert refused.error["code"] in ("unavailable", "plan_has_errors")
