"""`RemoteLauncher` over a plain shared folder: what is left of launches that fail, or are lost."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.node.node_report import REPORT, seal
from sgpu_decl.backends.base import LogReader, NoLog
from sgpu_decl.backends.launch_request import LaunchRequest, config_of
from sgpu_decl.backends.remote.launching.remote_launcher import RemoteLauncher
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.staging.remote_gc import collect
from sgpu_decl.backends.remote.staging.remote_layout import MARKER
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.backends.remote.watching.remote_attempts import RemoteAttempts
from sgpu_decl.backends.remote.watching.remote_status import RemoteStatus
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Quiet, Sent
from sgpu_decl.places.folder import FolderPlace
from tests.backends.remote.conftest import Shared

Make = Callable[..., Shared]
SOURCE = "def main(): return {}\n"


class Attempts(RemoteAttempts):
    """All that have a marker are running."""

    def status(self, record: LaunchRecord, marker: Mapping[str, Any]) -> RemoteStatus:
        running = AttemptState.RUNNING
        return RemoteStatus(view=AttemptView(ref=record.ref, backend=record.backend, state=running))

    def log(self, record: LaunchRecord, ranks: Sequence[int] | None, *, follow: bool) -> LogReader:
        return NoLog()


class Launcher(RemoteLauncher):
    """Starts runs with numbers, or fails with `refusal`."""

    refusal: BackendError | None = None

    def start(self, request: LaunchRequest, folder: str) -> Mapping[str, int]:
        if self.refusal is not None:
            raise self.refusal
        return {"run": request.ref.number}

    def cancel(self, record: LaunchRecord) -> None:
        """Nothing runs."""


class Unreadable(FolderPlace):
    """A folder that does not answer."""

    def get(self, path: str) -> bytes:
        raise BackendError(f"no answer about `{path}`")


class FullAtTheEnd(FolderPlace):
    """A folder that takes all files of a launch but the last."""

    def put(self, path: str, content: bytes | Path, sent: Sent = lambda _: None) -> None:
        if path.endswith("/spec.json"):
            raise BackendError("the folder is full", code="no_room")
        super().put(path, content, sent)


def launcher_of(machine: Shared) -> tuple[Launcher, RemoteLaunches]:
    context = machine.context()
    launches = RemoteLaunches(context.layout, lambda _: machine.area)
    return Launcher(context, launches, Attempts(launches), machine.program), launches


def staged(machine: Shared) -> tuple[Launcher, RemoteLaunches, LaunchRequest]:
    """A launcher that has staged a launch."""
    launcher, launches = launcher_of(machine)
    request = machine.request(SOURCE)
    launcher.stage(request)
    return launcher, launches, request


def refused(launcher: Launcher, request: LaunchRequest) -> None:
    """The platform refuses a launch, for certain."""
    launcher.refusal = BackendError("no such machines")
    with pytest.raises(BackendError, match="no such machines"):
        launcher.launch(request)
    launcher.refusal = None


def test_a_launch_that_is_refused_leaves_nothing_that_gc_waits_for(shared: Make) -> None:
    launcher, _, request = staged(machine := shared())

    refused(launcher, request)

    assert not Path(machine.folder(request)).exists()
    assert (collect(machine.area) or 0) > 0


def test_a_refused_launch_is_staged_anew_by_the_same_process(shared: Make) -> None:
    launcher, launches, request = staged(shared())
    refused(launcher, request)

    launcher.stage(request)
    launcher.launch(request)

    assert (launches.marker(request.record) or {})["run"] == 1


def test_a_launch_that_cannot_be_staged_leaves_nothing_that_gc_waits_for(shared: Make) -> None:
    machine = shared()
    machine.files = FullAtTheEnd(machine.root)
    machine.area = StagingArea(machine.area.layout, machine.files, key=machine.area.key)
    launcher, _ = launcher_of(machine)
    request = machine.request(SOURCE)

    with pytest.raises(BackendError, match="the folder is full"):
        launcher.stage(request)

    assert not launcher.staged(request.record)
    assert (collect(machine.area) or 0) > 0


def test_a_launch_that_is_refused_leaves_the_lease_to_the_others_of_its_apply(
    shared: Make,
) -> None:
    launcher, _ = launcher_of(machine := shared())
    first, second = (machine.request(SOURCE, number) for number in (1, 2))
    launcher.prepare([first, second], Quiet())
    launcher.stage(first)
    refused(launcher, first)

    assert collect(machine.area) is None, "the second one has not got its marker yet"

    launcher.stage(second)
    launcher.launch(second)
    assert collect(machine.area) == 0
    assert not list(Path(machine.area.layout.runs).glob("*/.leases/*"))


def test_a_launch_whose_answer_was_lost_stays_staged(shared: Make) -> None:
    launcher, _, request = staged(shared())
    launcher.refusal = OutcomeUnknown("no answer")

    with pytest.raises(OutcomeUnknown):
        launcher.launch(request)

    assert launcher.staged(request.record)


def test_a_launch_whose_marker_cannot_be_read_stays_staged(shared: Make) -> None:
    _, _, request = staged(machine := shared())
    there = shared("elsewhere")
    next_process, _ = launcher_of(there)
    assert next_process.staged(request.record)
    area = there.area
    there.area = StagingArea(area.layout, Unreadable(machine.root), key=area.key)

    with pytest.raises(OutcomeUnknown, match="may have been started: no answer"):
        next_process.launch(request)

    there.area = area
    assert next_process.staged(request.record)


def test_what_another_process_staged_stays_if_this_one_is_refused(shared: Make) -> None:
    launcher, _, request = staged(machine := shared())
    next_process, _ = launcher_of(machine)
    assert next_process.staged(request.record)
    next_process.stage(request)
    next_process.refusal = BackendError("you may not use this pool", hint="ask its owner")

    with pytest.raises(OutcomeUnknown, match="may have been started: you may not") as caught:
        next_process.launch(request)

    assert caught.value.hint == "ask its owner"
    assert next_process.staged(request.record)
    refused(launcher, request)  # who staged it knows that nothing was started
    assert not launcher.staged(request.record)


def left_output(folder: str) -> None:
    """A node of that launch brings back a file."""
    node = Path(folder, "back/0/node_0")
    node.mkdir(parents=True)
    (node / REPORT).write_bytes(seal(files={"output/ckpt": {"bytes": 1, "sha256": "0" * 64}}))


def test_output_in_another_storage_is_not_found_again(shared: Make, tmp_path: Path) -> None:
    machine = shared()
    other = Shared(tmp_path / "there", tmp_path / "other")
    areas = {1: machine.area, 2: other.area}
    launches = RemoteLaunches(machine.context().layout, lambda config: areas[config.gpus])
    request, elsewhere = machine.request(SOURCE), machine.request(SOURCE, 2, gpus=2)
    left_output(machine.folder(request))
    attempts = Attempts(launches)
    assert attempts.left_output(request.record, request.config)
    assert not attempts.left_output(request.record, elsewhere.config)


def test_an_upstream_that_nodes_would_not_find_is_refused(shared: Make, tmp_path: Path) -> None:
    machine, other = shared(), Shared(tmp_path / "there", tmp_path / "other")
    areas = {1: machine.area, 2: other.area}
    launches = RemoteLaunches(machine.context().layout, lambda config: areas[config.gpus])
    launcher = Launcher(machine.context(), launches, Attempts(launches), machine.program)
    train = AttemptRef(Address.run("train"), 8)
    made = replace(machine.request(SOURCE, 8).record, ref=train)
    elsewhere = replace(machine.request(SOURCE, 9, gpus=2).record, ref=train)
    reads = machine.request(SOURCE, args={"weights": "${run.train#8.output}"})

    def refusal(*upstreams: LaunchRecord) -> tuple[str, str]:
        with pytest.raises(BackendError) as raised:
            launcher.require_upstreams(replace(reads, after=upstreams), "with another `root`")
        return str(raised.value.code), raised.value.message

    gone = ("output_gone", "`test#1` reads the output of `train#8`, which is gone")
    assert refusal() == refusal(made) == gone
    there = "`test#1` comes after `train#8`, which was launched "
    assert refusal(elsewhere) == ("upstream_elsewhere", f"{there}with another `root`")
    local = replace(made, backend="local")
    assert refusal(local) == ("upstream_elsewhere", f"{there}on the backend `local`")

    Path(launches.folder(made), "back").mkdir(parents=True)
    launcher.require_upstreams(replace(reads, after=(made,)), "")


def test_output_below_an_older_name_is_not_found_again(shared: Make) -> None:
    """The next launch has its folder below the new name, and its nodes look beside that."""
    machine = shared()
    request = machine.request(SOURCE)
    folder = machine.folder(request)
    left_output(folder)
    attempts = Attempts(RemoteLaunches(machine.context().layout, lambda _: machine.area))
    moved = replace(request.record, ref=AttemptRef(Address.run("moved"), 1), reference=folder)
    assert not attempts.left_output(moved, config_of(moved.ref, moved.inputs))
    assert attempts.left_output(moved, request.config)


def test_a_start_that_cannot_be_noted_is_found_by_the_next_apply(shared: Make) -> None:
    launcher, launches, request = staged(machine := shared())
    marker = Path(machine.folder(request), MARKER)
    marker.rename(marker.with_name("kept"))
    marker.mkdir()
    (marker / "in the way").touch()

    with pytest.raises(OutcomeUnknown, match="was started, which could not be noted"):
        launcher.launch(request)

    shutil.rmtree(marker)
    marker.with_name("kept").rename(marker)
    assert launcher.staged(request.record)
    launcher.launch(request)
    assert (launches.marker(request.record) or {})["run"] == 1


def test_a_launch_is_found_by_its_reference_under_another_address(shared: Make) -> None:
    launcher, _, request = staged(shared())
    reference = launcher.launch(request)
    moved = replace(request.record, ref=AttemptRef(Address.run("moved"), 1))

    _, launches = launcher_of(shared("elsewhere"))

    assert launches.marker(moved) is None
    marker = launches.marker(replace(moved, reference=reference))
    assert marker is not None
    assert marker["run"] == 1


def test_who_asks_again_whether_it_staged_a_launch_does_not_know_who_started_it(
    shared: Make,
) -> None:
    launcher, _, request = staged(shared())
    assert launcher.staged(request.record)
    launcher.refusal = BackendError("no such machines")

    with pytest.raises(OutcomeUnknown, match="may have been started: no such machines"):
        launcher.launch(request)

    assert launcher.staged(request.record)
