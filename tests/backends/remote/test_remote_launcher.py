"""`RemoteLauncher` over a plain shared folder: what is left of launches that fail, or are lost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.base import Launching, LogReader, NoLog
from sgpu_decl.backends.remote.attempts import MarkedAttempts
from sgpu_decl.backends.remote.folder_files import FolderFiles
from sgpu_decl.backends.remote.launcher import RemoteLauncher
from sgpu_decl.backends.remote.launches import RemoteLaunches
from sgpu_decl.backends.remote.remote_gc import collect
from sgpu_decl.backends.remote.staging_area import StagingArea
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Sent
from tests.backends.remote.conftest import Shared

Make = Callable[..., Shared]
SOURCE = "def main(): return {}\n"


class Attempts(MarkedAttempts):
    """All that have a marker are running."""

    def view(self, record: LaunchRecord, marker: Mapping[str, Any]) -> AttemptView:
        return AttemptView(ref=record.ref, backend=record.backend, state=AttemptState.RUNNING)

    def log(self, record: LaunchRecord, ranks: Sequence[int] | None, *, follow: bool) -> LogReader:
        return NoLog()


class Launcher(RemoteLauncher):
    """Starts runs with numbers, or fails with `refusal`."""

    refusal: BackendError | None = None

    def start(self, launching: Launching, folder: str) -> Mapping[str, int]:
        if self.refusal is not None:
            raise self.refusal
        return {"run": launching.ref.number}

    def cancel(self, record: LaunchRecord) -> None:
        """Nothing runs."""


class FullAtTheEnd(FolderFiles):
    """A folder that takes all files of a launch but the last."""

    def put(self, path: str, content: bytes | Path, sent: Sent = lambda _: None) -> None:
        if path.endswith("/spec.json"):
            raise BackendError("the folder is full", code="no_room")
        super().put(path, content, sent)


def launcher_of(machine: Shared) -> tuple[Launcher, RemoteLaunches]:
    context = machine.context()
    launches = RemoteLaunches(context.layout, lambda _: machine.area)
    return Launcher(context, launches, Attempts(launches), machine.program), launches


def test_a_launch_that_is_refused_leaves_nothing_that_gc_waits_for(shared: Make) -> None:
    machine = shared()
    launcher, _ = launcher_of(machine)
    launcher.refusal = BackendError("no such machines")
    launching = machine.launching(SOURCE)
    launcher.stage(launching)

    with pytest.raises(BackendError, match="no such machines"):
        launcher.launch(launching)

    assert not Path(machine.folder(launching)).exists()
    assert (collect(machine.area) or 0) > 0


def test_a_launch_that_cannot_be_staged_leaves_nothing_that_gc_waits_for(shared: Make) -> None:
    machine = shared()
    machine.files = FullAtTheEnd(machine.root)
    machine.area = StagingArea(machine.area.layout, machine.files, key=machine.area.key)
    launcher, _ = launcher_of(machine)
    launching = machine.launching(SOURCE)

    with pytest.raises(BackendError, match="the folder is full"):
        launcher.stage(launching)

    assert not launcher.staged(launching.record)
    assert (collect(machine.area) or 0) > 0


def test_a_launch_whose_answer_was_lost_stays_staged(shared: Make) -> None:
    launcher, _ = launcher_of(machine := shared())
    launcher.refusal = OutcomeUnknown("no answer")
    launching = machine.launching(SOURCE)
    launcher.stage(launching)

    with pytest.raises(OutcomeUnknown):
        launcher.launch(launching)

    assert launcher.staged(launching.record)


def test_a_launch_is_found_by_its_reference_under_another_address(shared: Make) -> None:
    launcher, _ = launcher_of(machine := shared())
    launching = machine.launching(SOURCE)
    launcher.stage(launching)
    reference = launcher.launch(launching)
    moved = replace(launching.record, ref=AttemptRef(Address.run("moved"), 1))

    _, launches = launcher_of(shared("elsewhere"))

    assert launches.marker(moved) is None
    marker = launches.marker(replace(moved, reference=reference))
    assert marker is not None
    assert marker["run"] == 1
