"""The lines of nodes in the log of the job."""

from pathlib import Path

import pytest

from sgpu_decl.backends.ray.cluster.log_copies import LogCopy


def test_the_log_of_a_job_ends_at_its_limit_and_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = LogCopy(most=30)
    paths = [tmp_path / f"{node}.log" for node in range(3)]
    for node, path in enumerate(paths):
        path.write_text(f"[rank {node}] a line\n")
    copy.begin([str(path) for path in paths])
    copy.copy_new_lines()
    with paths[0].open("a") as log:
        log.write("[rank 0] another line")

    copy.finish()

    assert capfd.readouterr().out.splitlines() == [
        "[rank 0] a line",
        "[rank 1] a line",
        "sgpu: the log of this job ends here; `sgpu logs` shows the rest",
    ]
