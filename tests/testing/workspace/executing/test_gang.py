"""Nodes as processes: what stops them, and that nothing of them stays."""

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.testing.workspace.executing.endings import AttemptEnding
from sgpu_decl.testing.workspace.executing.gang import Gang, NodeDeath, Result
from sgpu_decl.testing.workspace.executing.logs import Log, read_page
from sgpu_decl.testing.workspace.executing.node import NodeProcess, NodeSpec, can_have_root
from tests.support import until
from tests.testing.workspace.executing.conftest import processes_with


def bash(text: str, mark: Path) -> NodeSpec:
    environment = {"PATH": os.environ["PATH"], "MARK": str(mark)}
    return NodeSpec(argv=("bash", "-c", text), environment=environment, cwd="/")


class Running:
    """A gang in a thread of its own."""

    def __init__(self, folder: Path, *texts: str, grace: float = 60, **more: object) -> None:
        self.folder = folder
        self.log = Log(folder, folder, len(texts))
        specs = [bash(text, folder) for text in texts]
        self.gang = Gang(specs, self.log, grace=grace, **more)  # type: ignore[arg-type]
        self.result: Result | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.result = self.gang.run(None)

    def lines(self) -> list[str]:
        return [one.text for one in read_page(self.folder, self.folder).records]

    def ended(self) -> Result:
        self._thread.join()
        self.log.close()
        assert processes_with(str(self.folder)) == []
        assert self.result is not None
        return self.result


def test_all_is_well_when_all_nodes_end_well(tmp_path: Path) -> None:
    running = Running(tmp_path, "echo a", "echo b")
    assert running.ended() == Result(ending=AttemptEnding.SUCCEEDED)
    assert sorted(running.lines()) == ["a", "b"]


def test_a_signal_is_told_from_an_exit_code(tmp_path: Path) -> None:
    result = Running(tmp_path, "kill -SEGV $$").ended()
    assert (result.ending, result.exit_code) == (AttemptEnding.FAILED, -signal.SIGSEGV)


def test_a_program_that_cannot_be_started_is_said_in_the_log(tmp_path: Path) -> None:
    log = Log(tmp_path, tmp_path, 1)
    spec = NodeSpec(argv=("no-such-program",), environment={"PATH": "/nowhere"}, cwd="/")
    result = Gang([spec], log, grace=1).run(None)
    log.close()
    assert result.exit_code == 127
    (record,) = read_page(tmp_path, tmp_path).records
    assert record.text == "cannot start `no-such-program`: No such file or directory"


def test_who_does_not_listen_is_killed_after_the_grace(tmp_path: Path) -> None:
    running = Running(tmp_path, "trap '' TERM; echo up; while :; do sleep 0.05; done", grace=0.1)
    until(running.lines)
    running.gang.cancel()
    assert running.ended().ending is AttemptEnding.CANCELLED


def test_who_listens_has_all_of_the_grace(tmp_path: Path) -> None:
    text = "trap 'echo bye; exit 0' TERM; echo up; while :; do read -t 0.05 < /dev/zero; done"
    running = Running(tmp_path, text)
    until(running.lines)
    running.gang.cancel()
    assert running.ended().ending is AttemptEnding.CANCELLED
    assert running.lines()[-1] == "bye"


def test_the_end_of_the_server_waits_for_nobody(tmp_path: Path) -> None:
    running = Running(tmp_path, "trap '' TERM; echo up; while :; do sleep 0.05; done")
    until(running.lines)
    running.gang.kill()
    assert running.ended().ending is AttemptEnding.CANCELLED


def test_a_deadline_that_has_passed_stops_everything(tmp_path: Path) -> None:
    log = Log(tmp_path, tmp_path, 1)
    result = Gang([bash("sleep 1000", tmp_path)], log, grace=60).run(time.monotonic())
    log.close()
    assert result.ending is AttemptEnding.TIMED_OUT
    assert processes_with(str(tmp_path)) == []


def test_a_lost_node_leaves_what_it_wrote_and_nothing_else(tmp_path: Path) -> None:
    deaths = [NodeDeath(node=1, after_lines=2)]
    text = "echo 1; echo 2; setsid sleep 1000 & sleep 1000"
    running = Running(tmp_path, "sleep 1000", text, deaths=deaths)
    result = running.ended()
    assert (result.ending, result.message) == (AttemptEnding.NODE_LOST, "Node 1 was lost")
    assert running.lines() == ["1", "2"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_keeper_that_is_killed_is_a_lost_node(tmp_path: Path, number: int) -> None:
    running = Running(tmp_path, "setsid sleep 1000 & echo up; sleep 1000")
    until(running.lines)
    os.kill(running.gang.keepers[0], number)
    assert running.ended().ending is AttemptEnding.NODE_LOST


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """So many that new ones have numbers beyond those that `select` can take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip("this machine allows no more open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    held = [os.dup(0) for _ in range(1100)]
    yield
    for descriptor in held:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_open_files")
def test_a_keeper_that_is_killed_is_noticed_by_a_server_with_many_open_files(
    tmp_path: Path,
) -> None:
    running = Running(tmp_path, "setsid sleep 1000 & echo up; sleep 1000")
    until(running.lines)
    os.kill(running.gang.keepers[0], signal.SIGKILL)
    assert running.ended().ending is AttemptEnding.NODE_LOST


def test_a_node_ends_with_whoever_started_it(tmp_path: Path) -> None:
    text = "trap '' TERM; setsid sleep 1000 & echo up; sleep 1000"
    reading, writing = os.pipe()
    starter = os.fork()
    if starter == 0:
        try:
            node = NodeProcess(bash(text, tmp_path))
            os.write(writing, os.read(node.output, 100))
            signal.pause()
        finally:
            os._exit(1)
    assert os.read(reading, 100) == b"up\n"
    os.close(reading)
    os.close(writing)
    os.kill(starter, signal.SIGKILL)
    os.waitpid(starter, 0)
    until(lambda: processes_with(str(tmp_path)) == [])


def test_a_node_has_a_root_of_its_own_where_that_is_allowed(tmp_path: Path) -> None:
    if not can_have_root(tmp_path / "probe"):
        pytest.skip("this machine allows no mount namespaces")
    place, root = tmp_path / "tree", tmp_path / "root"
    place.mkdir()
    root.mkdir()
    (place / "a.txt").write_text("found\n")
    spec = NodeSpec(
        argv=("bash", "-c", "cat /Workspace/a.txt; echo new > /Workspace/b.txt; ls -d /dev/null"),
        environment={"PATH": os.environ["PATH"]}, cwd="/", root=root,
        folders={"/Workspace": str(place)},
    )  # fmt: skip
    log = Log(tmp_path, tmp_path, 1)
    assert Gang([spec], log, grace=1).run(None).ending is AttemptEnding.SUCCEEDED
    log.close()
    found = [one.text for one in read_page(tmp_path, tmp_path).records]
    assert found == ["found", "/dev/null"]
    assert (place / "b.txt").read_text() == "new\n"
    assert list(root.iterdir()) == []
    assert not Path("/Workspace").exists()
