"""The webhook of a run on a Ray cluster: node 0 tells of its end, the driver of a cancelled run."""

import json
from pathlib import Path

import pytest

from sgpu_decl.testing.file_search import files_with
from sgpu_decl.testing.ray_cluster import RayCluster
from tests.backends.ray.cluster_run import ClusterRun
from tests.support import until
from tests.webhook_server import WebhookServer

pytestmark = [pytest.mark.ray, pytest.mark.expensive]

KEY = "a-key-that-nobody-may-see"
ON_FINISH = {"webhook": {"url": "env:HOOK_URL", "secret": "env:HOOK_KEY"}}


@pytest.mark.parametrize("storage", [True, False], ids=["storage", "head"])
@pytest.mark.parametrize("cancelled", [False, True], ids=["fails", "cancelled"])
def test_each_end_is_told_once(
    cluster: RayCluster, tmp_path: Path, hook: WebhookServer,
    *, storage: bool, cancelled: bool,
) -> None:  # fmt: skip
    environ = {"HOOK_URL": hook.url, "HOOK_KEY": KEY}
    run = ClusterRun(cluster, tmp_path, environ, storage=storage)
    if cancelled:
        run.hold(on_finish=ON_FINISH)
        run.bench.done("cancel", "hello")
    else:
        run.bench.declare("fail", args={"at": 0}, on_finish=ON_FINISH)
        run.bench.launched()
    ended = run.bench.ended()
    until(lambda: not [job for job in run.jobs if job["status"] == "RUNNING"])

    assert [body["state"] for body in hook.bodies] == [ended["state"]]
    assert ended["state"] == ("cancelled" if cancelled else "failed")
    assert "X-Sgpu-Signature-256" in hook.requests[0][0]
    if not cancelled:
        (notice,) = run.bench.done("show", "hello", "-o", "json").data["notices"]
        assert (notice["way"], notice["ok"]) == ("webhook", True)
    for value in (KEY, "the-secret-path"):
        assert files_with(value.encode(), run.bench.project, run.shared) == []
    assert KEY not in json.dumps(run.jobs)
    run.bench.close()
