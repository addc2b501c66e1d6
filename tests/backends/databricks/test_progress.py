"""How far a run on the platform is, while it goes on and after its end."""

from datetime import UTC, datetime

import pytest

from sgpu_decl.backends.remote.watching import remote_attempts
from tests.backends.databricks.bench import DatabricksBench
from tests.support import until

REPORTS = """
import json, os, time, urllib.request

def main(n):
    print("printed", flush=True)
    listed = [{"name": "current_step", "value": "3"}, {"name": "total_steps", "value": "12"}]
    with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
        token = file.read()
    request = urllib.request.Request(
        os.environ["KUBEFLOW_TRAINER_SERVER_URL"],
        data=json.dumps({"trainerStatus": {"metrics": listed}}).encode(),
        headers={"Authorization": "Bearer " + token}, method="POST",
    )
    urllib.request.urlopen(request, timeout=30).close()
    while not os.path.exists("%s"):
        time.sleep(0.05)
"""


@pytest.mark.expensive
def test_a_run_tells_how_far_it_is(bench: DatabricksBench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_TOLD", "_TOLD"):
        monkeypatch.setattr(remote_attempts, name, 0.0)
    done = bench.project.parent / "done"
    bench.code(REPORTS % done)
    run = bench.launch()
    until(lambda: run.status.progress)
    progress = run.status.progress
    assert progress is not None
    assert (progress.step, progress.total, progress.percent) == (3, 12, 25.0)
    watch = run.session.runs.watch(run.ref)

    def used() -> list[int | None]:
        return [one.memory for one in watch.look(run.status, datetime.now(UTC)).ranks]

    until(lambda: all(used()))  # once the monitor has looked twice
    until(lambda: "printed" in watch.newest_lines(run.status, 0))
    done.touch()
    ended = run.ended().status
    assert ended.progress == progress
    assert str(ended.state) == "succeeded"
