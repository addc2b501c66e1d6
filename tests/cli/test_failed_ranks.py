"""Several ranks fail: each is named, and `logs` shows the one that failed first."""

from tests.cli.conftest import Shell

RUN = """\
name: pair
gpus: 3
type: CPU
mlflow: {enabled: false}
grace: 20s
entrypoint: train.py:main
"""
# Rank 2 fails first. Rank 1 fails too, and is still on its way out when it is stopped.
FAILS = """
import atexit, os, signal, time
from pathlib import Path

def main():
    rank, output = os.environ["RANK"], Path(os.environ["SGPU_OUTPUT_DIR"])
    print("this is rank", rank)
    if rank == "1":
        atexit.register(signal.pause)
        atexit.register((output / "raised").touch)
        raise KeyError("second")
    while not (output / "raised").exists():
        time.sleep(0.01)
    if rank == "2":
        raise ValueError("first")
    signal.pause()
"""


def test_ranks_that_failed_beside_the_first_are_listed(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", FAILS)

    applied = sgpu.exits(5, "apply", "-y")
    (run,) = sgpu.data("status", "pair")["runs"]
    first = run["first_cause"]["rank"]
    others = [rank for rank in run["ranks"] if rank["state"] == "failed" and rank["rank"] != first]
    # The exception of rank 1 came first, though rank 2 ended first.
    assert {first, *(rank["rank"] for rank in others)} == {1, 2}
    assert f"(1 other rank failed, too: {others[0]['rank']})" in applied.err
    assert all(rank["signal"] is None for rank in run["ranks"] if rank["state"] == "failed")
    assert {rank["exit_code"] for rank in run["ranks"] if rank["state"] == "failed"} == {1}

    shown = sgpu.here("logs", "pair")
    assert f"this is rank {first}\n" in shown.out
    assert "this is rank 0" not in shown.out
    assert f"this is the output of rank {first}, which failed first" in shown.err
    assert "this is rank 0" in sgpu.here("logs", "pair", "--rank", "0").out
