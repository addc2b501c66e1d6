"""Leases of launches against gc, over a plain shared folder."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from sgpu_decl.backends.remote.staging import lease
from sgpu_decl.backends.remote.staging.lease import gc_lock
from sgpu_decl.backends.remote.staging.remote_gc import collect, free_launch, unstage_launch
from sgpu_decl.backends.remote.staging.remote_layout import MARKER
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.places.file_place import PlaceEntry
from sgpu_decl.places.folder import FolderPlace
from sgpu_decl.views.progress_text import phase_line
from tests.backends.remote.conftest import Shared
from tests.mounts import fill, small_disk
from tests.support import PATIENCE, until

Make = Callable[..., Shared]
DAY = 86_400.0
SOURCE = "def main(): return {}\n"


def names(machine: Shared) -> set[str]:
    return {path.name for path in Path(machine.area.layout.objects).glob("*/*")}


def age(seconds: float, *paths: Path) -> None:
    for path in paths:
        moment = path.stat().st_mtime - seconds
        os.utime(path, (moment, moment))


def test_what_a_launch_on_its_way_needs_is_not_deleted(shared: Make) -> None:
    machine = shared()
    request = machine.request(SOURCE)
    (uses,) = machine.stage(request)
    needed = names(machine)
    assert collect(machine.area) is None
    machine.mark(request, uses)
    assert collect(machine.area) == 0
    assert names(machine) == needed


def test_a_launch_that_was_submitted_by_nobody_for_a_day_is_deleted(shared: Make) -> None:
    machine = shared()
    killed, left, begun = (machine.request(SOURCE, number) for number in (1, 2, 3))
    machine.stage(killed)
    machine.stage(left)
    Path(machine.folder(left), "back").mkdir()  # its nodes ran, though it has no marker
    folders = [Path(machine.folder(one)) for one in (killed, left, begun)]
    folders[2].mkdir(parents=True)  # and has no file yet
    (machine.root / ".new-0123").write_bytes(b"")
    age(2 * DAY, *folders[0].iterdir(), *folders[1].iterdir(), machine.root / ".new-0123")

    assert (collect(shared("another").area) or 0) > 0

    assert [folder.exists() for folder in folders] == [False, True, True]
    assert names(machine) == set()
    assert not (machine.root / ".new-0123").exists()


def test_what_no_launch_needs_is_deleted(shared: Make) -> None:
    machine = shared()
    for number in (1, 2):
        request = machine.launched(SOURCE.format(number), number)
    needed = names(machine)
    unstage_launch(machine.area, machine.folder(request))
    assert (collect(machine.area) or 0) > 0
    assert len(names(machine)) == len(needed) - 1
    for path in Path(machine.area.layout.runs).glob("*/*/*"):
        free_launch(machine.area, str(path))
    collect(machine.area)
    assert names(machine) == set()


def test_gc_makes_room_in_a_shared_folder_that_is_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, 4 << 20):
        machine = Shared(tmp_path / "home", disk)
        request = machine.launched(SOURCE)
        free_launch(machine.area, machine.folder(request))
        fill(disk / "filler")
        assert (collect(machine.area) or 0) > 0
        assert names(machine) == set()


@pytest.mark.parametrize("damaged", [None, b"", b"[]", b"{"])
def test_what_a_launch_left_stays_and_needs_nothing(shared: Make, damaged: bytes | None) -> None:
    machine = shared()
    request = machine.request(SOURCE)
    (uses,) = machine.stage(request)
    machine.mark(request, uses)
    folder = Path(machine.folder(request))
    for name in ("back/0/node_0/report.json", "logs/0/0.log", "status.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "command.sh").touch()
    marker = folder / MARKER
    before = json.loads(marker.read_text())
    if damaged is not None:
        marker.write_bytes(damaged)

    unstage_launch(machine.area, str(folder))

    assert sorted(os.listdir(folder)) == ["back", "logs", "status.json", MARKER]
    known = before if damaged is None else {}
    assert json.loads(marker.read_text()) == {**known, "uses": {}}
    assert (collect(machine.area) or 0) > 0
    assert names(machine) == set()


def test_one_lease_keeps_the_objects_of_all_launches_of_an_apply(shared: Make) -> None:
    machine = shared()
    first, second = (machine.request(SOURCE.format(item), item) for item in (1, 2))
    uses = machine.stage(first, second)
    machine.mark(first, uses[0])
    assert collect(machine.area) is None
    machine.mark(second, uses[1])
    assert collect(machine.area) == 0
    assert len(names(machine)) == 3


def test_a_launch_whose_folder_appears_while_gc_looks_keeps_its_objects(shared: Make) -> None:
    machine = shared()
    request = machine.request(SOURCE)
    (uses,) = machine.stage(request)
    folder = machine.folder(request)
    shutil.rmtree(folder)
    needed = names(machine)

    def has_unseen_launch(known: Collection[str]) -> bool:
        machine.files.make_folder(folder)
        machine.mark(request, uses)
        return folder not in known

    area = StagingArea(
        machine.area.layout,
        machine.files,
        key=machine.area.key,
        has_unseen_launch=has_unseen_launch,
    )

    assert collect(area) is None
    assert collect(area) == 0
    assert names(machine) == needed


def test_the_lease_of_an_apply_that_died_ends_after_a_day(shared: Make) -> None:
    machine = shared()
    request = machine.request(SOURCE)
    machine.stage(request)  # and dies here
    folder = Path(machine.folder(request))
    age(DAY - 600, *folder.iterdir())
    assert collect(machine.area) is None
    age(1200, *folder.iterdir())
    assert (collect(machine.area) or 0) > 0
    assert names(machine) == set()


def test_a_gc_that_died_holds_up_nobody_and_its_lock_goes(shared: Make) -> None:
    machine = shared()
    request = machine.request(SOURCE)
    machine.stage(request)
    dead = Path(machine.area.layout.agents, "freeing-0123456789ab")
    dead.write_bytes(b"1")
    age(301, dead)
    other = shared("other")
    waiting = other.request(SOURCE, number=2)
    (uses,) = other.stage(waiting)
    other.mark(waiting, uses)
    (Path(machine.folder(request)) / MARKER).write_bytes(b'{"uses": {"agent": "0"}}')
    assert collect(machine.area) == 1
    assert not dead.exists()


def test_an_apply_waits_for_a_gc_that_goes_on(
    shared: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, staged = threading.Event(), threading.Event()

    class Clock:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def sleep(_: float) -> None:
            waits.set()

    monkeypatch.setattr(lease, "time", Clock)
    first, second = shared(), shared("other")
    first.launched(SOURCE)
    other = second.request(SOURCE, number=2)

    def stage() -> None:
        second.stage(other)
        staged.set()

    with gc_lock(first.area):
        thread = threading.Thread(target=stage)
        thread.start()
        until(lambda: waits.is_set() or staged.is_set())
        assert not staged.is_set()
    thread.join(PATIENCE)
    assert staged.is_set()


COLLECT = """
import sys
from pathlib import Path
from sgpu_decl.places.folder import FolderPlace
from sgpu_decl.backends.remote.staging.remote_gc import collect
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
root = Path(sys.argv[1])
while not (root / "stop").exists():
    collect(StagingArea(RemoteLayout(str(root)), FolderPlace(root), key={}))
    print(flush=True)
"""


def test_a_gc_in_another_process_never_takes_what_a_launch_needs(
    shared: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_LOOK", 0.001)
    machine = shared()
    machine.stage(machine.request(SOURCE, number=100))
    free_launch(machine.area, next(map(str, Path(machine.area.layout.runs).glob("*/*/*"))))
    collector = subprocess.Popen(
        [sys.executable, "-c", COLLECT, str(machine.root)], stdout=subprocess.PIPE
    )
    assert collector.stdout is not None
    try:
        for number in range(1, 25):
            collector.stdout.readline()
            request = machine.request(SOURCE.format(number % 2), number)
            (uses,) = machine.stage(request)
            machine.mark(request, uses)
            for path in machine.area.layout.shared(uses):
                assert Path(path).exists(), number
            free_launch(machine.area, machine.folder(request))
    finally:
        (machine.root / "stop").touch()
        collector.communicate(timeout=PATIENCE)
    assert collector.returncode == 0


FROZEN = """
import os, signal, sys
from pathlib import Path
from sgpu_decl.places.folder import FolderPlace
from sgpu_decl.backends.remote.staging import lease
from sgpu_decl.backends.remote.staging.remote_gc import collect
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
root = Path(sys.argv[1])
lease.STALE = lease._AGAIN + float(sys.argv[2])
layout = RemoteLayout(str(root))
class Files(FolderPlace):
    def list(self, folder, *, after=""):
        found = super().list(folder, after=after)
        if folder == layout.codes:
            os.kill(os.getpid(), signal.SIGSTOP)
        return found
print(collect(StagingArea(layout, Files(root), key={})))
"""


def test_a_gc_that_was_frozen_takes_nothing_that_a_launch_has_found_since(shared: Make) -> None:
    machine, patience = shared(), 0.5
    request = machine.request(SOURCE)
    machine.stage(request)
    free_launch(machine.area, machine.folder(request))
    collector = subprocess.Popen(
        [sys.executable, "-c", FROZEN, str(machine.root), str(patience)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert os.WIFSTOPPED(os.waitpid(collector.pid, os.WUNTRACED)[1])
    frozen = time.monotonic()
    age(lease.STALE + 1, *Path(machine.area.layout.agents).glob(f"{lease.LOCK}*"))
    other = shared("other")
    needing = other.request(SOURCE, number=2)
    (uses,) = other.stage(needing)
    other.mark(needing, uses)
    until(lambda: time.monotonic() - frozen > patience)

    collector.send_signal(signal.SIGCONT)

    assert collector.communicate(timeout=PATIENCE)[0] == "None\n"
    assert [path for path in machine.area.layout.shared(uses) if not Path(path).exists()] == []


class Late(FolderPlace):
    """A folder whose lists lack the files that were written a moment ago."""

    lag = 0.4

    def list(self, folder: str, *, after: str = "") -> tuple[PlaceEntry, ...]:
        shown = time.time() - self.lag
        found = super().list(folder, after=after)
        return tuple(item for item in found if item.folder or item.modified < shown)


def late(machine: Shared) -> Shared:
    """The same machine, where the lists of the folder lag."""
    machine.files = Late(machine.root)
    machine.area = StagingArea(machine.area.layout, machine.files, key=machine.area.key)
    return machine


def test_a_gc_waits_for_the_lease_of_a_launch_that_no_list_has_yet(shared: Make) -> None:
    machine = late(shared())
    first, second = machine.launched(SOURCE), machine.request(SOURCE, 2)
    needed = names(machine)
    free_launch(machine.area, machine.folder(first))
    machine.stage(second)  # finds what the first one had sent

    assert collect(late(shared("another")).area) is None
    assert names(machine) == needed


def test_a_gc_waits_for_the_lease_of_a_launch_that_has_not_seen_its_lock(shared: Make) -> None:
    machine = late(shared())
    first, second = machine.launched(SOURCE), machine.request(SOURCE, 2)
    needed = names(machine)
    free_launch(machine.area, machine.folder(first))
    freed: list[int | None] = []
    freeing = threading.Thread(target=lambda: freed.append(collect(late(shared("another")).area)))
    freeing.start()
    until(lambda: any(name.startswith(lease.LOCK) for name in names(machine)))
    machine.stage(second)
    freeing.join()
    assert freed == [None]
    assert names(machine) == needed


def test_a_launch_says_that_it_waits_for_a_gc(shared: Make) -> None:
    machine = shared()
    said: list[tuple[str, int, int]] = []

    class Watched:
        """Somebody who hears of the gc, and finds that it was killed."""

        def advance(self, phase: str, done: int, total: int) -> None:
            said.append((phase, done, total))
            lock.unlink()

    Path(machine.area.layout.agents).mkdir(parents=True)
    lock = Path(machine.area.layout.agents, f"{lease.LOCK}x")
    lock.touch()
    age(120, lock)
    assert lease.wait_for_agents(machine.area, Watched()) == ()
    ((phase, done, total),) = said
    assert (phase, total) == ("freeing", 300)
    assert 119 <= done < 300
    words = phase_line(phase, done, total, seconds=1.0)
    assert words.startswith("waiting for an `sgpu gc` that deletes from the staging folder")
