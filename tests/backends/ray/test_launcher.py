"""Launches whose earlier submission has an unknown outcome: no job is submitted twice. And launches
that come after others."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from sgpu_decl.backends.ray.clusters import Clusters
from sgpu_decl.backends.ray.launching.ray_launcher import RayLauncher
from sgpu_decl.backends.ray.launching.ray_launches import RayLaunches
from sgpu_decl.backends.ray.launching.ray_node_program import RayNodeProgram
from sgpu_decl.backends.ray.placement import RayPlacement, Strategy
from sgpu_decl.backends.ray.ray_attempts import RayAttempts
from sgpu_decl.backends.remote.staging.remote_layout import MARKER
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Quiet
from tests.backends.ray.answers import HEAD, NODES, Answers, answering
from tests.backends.remote.conftest import Shared
from tests.support import until

JOBS = "/api/jobs/"
VERSION = "/api/version"
PLACEMENT = RayPlacement(
    nodes=1, ranks_per_node=1, strategy=Strategy.PACK, bundle={"CPU": 1}, labels={}, scales=False
)


class Machine:
    """A machine that launches one run on the cluster of `answers`."""

    def __init__(self, home: Path, answers: Answers) -> None:
        root = home / "shared"
        root.mkdir()
        self._shared = Shared(home / "here", root)
        block = {"kind": "ray", "address": answers.url, "storage": str(root)}
        request = self._shared.request("def main(): return {}\n", backend=block)
        placement = replace(PLACEMENT, address=answers.url, head="h")
        inputs = replace(request.record.inputs, placement=placement.id)
        self.request = replace(request, record=replace(request.record, inputs=inputs))
        self.job = f"{JOBS}{request.record.token}"
        self.folder = Path(self._shared.folder(self.request))

    @contextmanager
    def launches(self) -> Iterator[RayLaunches]:
        area = self._shared.area
        with closing(Clusters()) as clusters:
            layout = self._shared.context().layout
            yield RayLaunches(layout, lambda _: area, lambda _: area, clusters)

    @contextmanager
    def launcher(self) -> Iterator[RayLauncher]:
        """That of a new process, which knows only what lies in the storage."""
        context = self._shared.context()
        area = self._shared.area
        with closing(Clusters()) as clusters:
            launches = RayLaunches(context.layout, lambda _: area, lambda _: area, clusters)
            with closing(RayAttempts(launches, clusters)) as attempts:
                yield RayLauncher(context, clusters, launches, attempts)

    def launch(self) -> None:
        """Stage and launch in a new process."""
        with self.launcher() as launcher:
            if not launcher.staged(self.request.record):
                launcher.prepare([self.request], Quiet())
            launcher.stage(self.request)
            launcher.launch(self.request)

    def upstream(self, **backend: str) -> LaunchRecord:
        """Have the run read the output of `train#8`, which comes before it; that launch, to another
        cluster or storage where it is given."""
        record = self.request.record
        spec = record.inputs.spec.fields
        block = cast("dict[str, str]", spec["backend"])
        before = Spec.of({**spec, "backend": {**block, **backend}})
        made = replace(
            record,
            ref=AttemptRef(Address.run("train"), 8),
            token="the-upstream",
            inputs=replace(record.inputs, spec=before),
        )
        reads = Spec.of({**spec, "args": {"weights": "${run.train#8.output}/w.pt"}})
        inputs = replace(record.inputs, spec=reads)
        record = replace(record, inputs=inputs, after=(made.ref,))
        self.request = replace(self.request, record=record, after=(made,))
        return made

    def marker(self) -> dict[str, Any]:
        marker: dict[str, Any] = json.loads((self.folder / MARKER).read_text())
        return marker


@pytest.fixture
def answers() -> Iterator[Answers]:
    nodes = {"data": {"result": {"result": [HEAD]}}}
    with answering({VERSION: {"session_name": "one"}, NODES: nodes}) as running:
        running.by_path |= {"/api/packages/gcs/*": {}, JOBS: "end"}
        yield running


@pytest.fixture
def machine(tmp_path: Path, answers: Answers) -> Machine:
    """One whose submission had an unknown outcome."""
    made = Machine(tmp_path, answers)
    with pytest.raises(OutcomeUnknown):
        made.launch()
    answers.requests.clear()
    return made


@pytest.mark.parametrize(("set_aside", "cpus"), [(0.5, 1), (1, 1), (2.5, 2), (100 * 0.29, 29)])
def test_a_rank_group_has_whole_cpus(
    tmp_path: Path, answers: Answers, set_aside: float, cpus: int
) -> None:
    """None would be all that the node has."""
    made = Machine(tmp_path, answers)
    placement = replace(PLACEMENT, bundle={"CPU": set_aside})
    inputs = replace(made.request.record.inputs, placement=placement.id)
    request = replace(made.request, record=replace(made.request.record, inputs=inputs))
    with made.launches() as launches:
        assert RayNodeProgram(launches).processors(request) == cpus


def submissions(answers: Answers) -> int:
    return sum(request == f"POST {JOBS}" for request, _ in answers.requests)


@pytest.mark.parametrize("path", [VERSION, "job"])
def test_a_cluster_that_does_not_answer_leaves_the_outcome_unknown(
    machine: Machine, answers: Answers, path: str
) -> None:
    asked = machine.job if path == "job" else path
    answers.by_path[asked] = (503, "soon")

    with pytest.raises(OutcomeUnknown, match=r"whether .* was submitted is not known"):
        machine.launch()

    assert machine.folder.exists()
    assert submissions(answers) == 0


def test_a_job_that_was_submitted_is_found_before_a_value_is_put_for_it(
    machine: Machine, answers: Answers
) -> None:
    answers.by_path |= {
        machine.job: {"status": "RUNNING"},
        "/api/packages/gcs/*": (500, "no value is taken"),
    }

    machine.launch()

    assert machine.marker()["session"] == "one"
    assert submissions(answers) == 0


def test_a_job_that_the_cluster_does_not_have_is_submitted(
    machine: Machine, answers: Answers
) -> None:
    answers.by_path[JOBS] = {}

    machine.launch()

    assert machine.marker()["session"] == "one"
    assert submissions(answers) == 1


def test_a_job_that_was_submitted_to_a_cluster_that_is_gone_is_not_submitted_to_another(
    machine: Machine, answers: Answers
) -> None:
    answers.by_path |= {VERSION: {"session_name": "two"}, JOBS: {}}

    machine.launch()

    assert machine.marker()["session"] == "one"
    assert submissions(answers) == 0


def test_a_launch_that_the_cluster_refuses_is_unstaged(machine: Machine, answers: Answers) -> None:
    answers.by_path[JOBS] = (400, "TypeError")

    with pytest.raises(BackendError) as raised:
        machine.launch()

    assert not isinstance(raised.value, OutcomeUnknown)
    assert not machine.folder.exists()


def test_a_launch_that_another_process_has_started_meanwhile_is_not_unstaged(
    machine: Machine, answers: Answers
) -> None:
    with machine.launcher() as stopped:
        stopped.prepare([machine.request], Quiet())
        stopped.stage(machine.request)
        answers.by_path[JOBS] = {}
        machine.launch()
        answers.by_path[JOBS] = (400, "TypeError")
        with pytest.raises(BackendError):
            stopped.launch(machine.request)

    assert machine.marker()["session"] == "one"


def test_a_launch_that_a_crash_left_is_not_sent_in_the_clear(
    tmp_path: Path, answers: Answers
) -> None:
    """The cluster may have asked for a token when it was staged."""
    answers.url = answers.url.replace("127.0.0.1", "0.0.0.0")  # no address of loopback
    machine = Machine(tmp_path, answers)
    with machine.launcher() as launcher:
        launcher.prepare([machine.request], Quiet())
        launcher.stage(machine.request)

    with pytest.raises(BackendError) as raised:
        machine.launch()

    assert raised.value.code == "ray_insecure"
    assert {request.partition(" ")[0] for request, _ in answers.requests} == {"GET"}


def test_a_plan_that_names_no_cluster_is_refused(tmp_path: Path, answers: Answers) -> None:
    machine = Machine(tmp_path, answers)
    inputs = replace(machine.request.record.inputs, placement=PLACEMENT.id)
    record = replace(machine.request.record, inputs=inputs)

    with machine.launcher() as launcher, pytest.raises(BackendError) as raised:
        launcher.check(replace(machine.request, record=record))

    assert (raised.value.code, raised.value.hint) == (
        "unavailable",
        "apply again: that plans again; make a saved plan anew",
    )


def test_the_driver_is_told_what_its_run_comes_after(tmp_path: Path, answers: Answers) -> None:
    answers.by_path[JOBS] = {}
    machine = Machine(tmp_path, answers)
    upstream = machine.upstream()

    machine.launch()

    launch = json.loads((machine.folder / "launch.json").read_text())
    spec = json.loads((machine.folder / "spec.json").read_text())
    inputs = f"{machine.folder}/inputs/train-8"
    folder = str(machine.folder.parents[1] / "train" / "8-the-upst")
    assert launch["upstreams"] == [
        {
            "name": "train#8",
            "token": upstream.token,
            "launch": folder,
            "back": f"{folder}/back",
            "retry": {"max": 0, "on": ["infra"], "backoff": 1.0},
            "nodes": 1,
            "waits": True,
            "output": inputs,
        }
    ]
    assert spec["entry"]["args"] == {"weights": f"{inputs}/w.pt"}


def test_an_upstream_on_another_cluster_is_refused(tmp_path: Path, answers: Answers) -> None:
    machine = Machine(tmp_path, answers)
    machine.upstream(address="http://127.0.0.1:9")

    with machine.launcher() as launcher, pytest.raises(BackendError) as raised:
        launcher.check(machine.request)

    assert (raised.value.code, raised.value.hint) == (
        "upstream_elsewhere", "apply again once `train#8` has ended",
    )  # fmt: skip


def test_an_output_that_was_deleted_is_refused(tmp_path: Path, answers: Answers) -> None:
    machine = Machine(tmp_path, answers)
    machine.upstream(address="http://127.0.0.1:9")  # it has ended there, and the storage is one
    record = replace(machine.request.record, after=())
    machine.request = replace(machine.request, record=record)

    with machine.launcher() as launcher:
        with pytest.raises(BackendError, match="reads the output of `train#8`, which is gone"):
            launcher.check(machine.request)
        (machine.folder.parents[1] / "train/8-the-upst/back").mkdir(parents=True)
        launcher.check(machine.request)


def test_a_launch_without_the_jobs_api_says_what_to_install(
    tmp_path: Path, answers: Answers
) -> None:
    """Its plan may have been made while the cluster did not answer."""
    del answers.by_path[VERSION]
    made = Machine(tmp_path, answers)

    with made.launcher() as launcher, pytest.raises(BackendError, match="no Jobs API") as raised:
        launcher.check(made.request)

    assert raised.value.code == "ray_without_jobs"
    assert "ray[default]" in str(raised.value.hint)


def cancelled_summary(machine: Machine, launcher: RayLauncher) -> str:
    """What a status says of a job that was stopped."""
    view = launcher._attempts.look([machine.request.record])[machine.request.ref]
    assert view.state == "cancelled"
    assert view.first_cause is not None
    return view.first_cause.summary


@pytest.mark.parametrize("status", ["PENDING", "RUNNING"])
def test_a_job_that_sgpu_had_stopped_was_not_stopped_by_somebody_else(
    machine: Machine, answers: Answers, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu_decl.backends.ray.launching.ray_launcher._SILENT", 0.0)
    answers.by_path |= {JOBS: {}, machine.job: {"status": status}}
    machine.launch()
    record = machine.request.record

    def stopped() -> dict[str, bool]:
        answers.by_path[machine.job] = {"status": "STOPPED"}
        return {"stopped": True}

    answers.by_path[f"{machine.job}/stop"] = stopped

    with machine.launcher() as launcher:
        launcher.cancel(record)
        if status == "RUNNING":
            assert answers.by_path[machine.job]["status"] == "RUNNING"  # its driver is asked
            stop = launcher.forced_stop(record, None)
            assert stop is not None
            until(lambda: stop.look() is not None)

    with machine.launcher() as launcher:
        assert (
            cancelled_summary(machine, launcher)
            == {
                "PENDING": "it was cancelled before Ray had started its driver",
                "RUNNING": "it was cancelled; its driver did not stop it, so Ray ended the job",
            }[status]
        )


def test_a_job_that_somebody_else_stopped_was_stopped_at_the_cluster(
    machine: Machine, answers: Answers
) -> None:
    answers.by_path |= {JOBS: {}, machine.job: {"status": "STOPPED"}}
    machine.launch()

    with machine.launcher() as launcher:
        assert cancelled_summary(machine, launcher) == "its job was stopped at the cluster"
