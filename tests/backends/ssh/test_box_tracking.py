"""The MLflow run of an attempt on a box."""

import pytest

from sgpu_decl.testing.contracts.backend_bench import BackendBench
from tests.support import until
from tests.tracking.conftest import Door, door, server_port

__all__ = ["door", "server_port"]


@pytest.mark.expensive
def test_a_server_that_the_box_reaches_has_the_run(bench: BackendBench, door: Door) -> None:
    bench.declare("value", args={"gate": str(bench.gate)}, mlflow={"tracking_uri": door.uri})

    run = bench.ran()

    assert run["state"] == "succeeded"
    until(lambda: door.runs("hello#1")[0]["info"]["status"] == "FINISHED")
    (tracked,) = door.runs("hello#1")
    shown = bench.done("show", "hello", "-o", "json").data
    assert tracked["info"]["run_id"] in str(shown)
