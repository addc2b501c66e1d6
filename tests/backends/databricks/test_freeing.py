"""What launches share, between those who launch and those who free: two sessions at once, one of
them held up by the workspace."""

import threading
from collections.abc import Callable, Iterator
from textwrap import indent

import pytest

from sgpu_decl.api import Location, PlanOptions, Session
from sgpu_decl.backends.remote.staging import lease
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.testing.workspace import Effect
from tests.backends.databricks.bench import DatabricksBench
from tests.support import PATIENCE, until

HoldUp = Callable[[str], tuple[threading.Event, threading.Event]]


@pytest.fixture
def hold_up(bench: DatabricksBench) -> Iterator[HoldUp]:
    """Hold up the first request of a pattern: gives when it has come, and what lets it go on."""
    held: list[threading.Event] = []

    def add(pattern: str) -> tuple[threading.Event, threading.Event]:
        come, go = threading.Event(), threading.Event()
        held.append(go)

        def wait(*_: object) -> None:
            come.set()
            assert go.wait(PATIENCE)

        bench.server.faults.register(pattern, wait)
        bench.fault(pattern, Effect.HOOK, hook=pattern)
        return come, go

    yield add
    for go in held:
        go.set()


def begun(do: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=do)
    thread.start()
    return thread


def destroyed(opened: Session) -> None:
    opened.apply(opened.plan(PlanOptions(destroy=True)))


@pytest.mark.expensive
def test_launches_on_their_way_keep_what_they_found(
    bench: DatabricksBench, hold_up: HoldUp
) -> None:
    volume = bench.stage_in_a_volume()
    bench.run()  # so that there is something to free
    folder = bench.project.parent / "others"
    common = (bench.project / "run.yaml").read_text().replace("name: hello\n", "")
    text = "project: {name: p}\nruns:\n"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        (folder / name / "train.py").write_text(f"def main(n):\n    return '{name}'\n")
        text += f"  {name}:\n" + indent(f"{common}code: {{root: {name}}}\n", "    ")
    (folder / "sgpu.yml").write_text(text)
    opened, refs = Session.open(Location(project=folder)), list[AttemptRef]()
    # The first launch has its marker by then, and of the second there is nothing but its code.
    come, go = hold_up("PUT */fs/directories/*/runs/*/b/*")
    plan = opened.plan()
    request = begun(lambda: refs.extend(opened.apply(plan, parallelism=1).launched))
    assert come.wait(PATIENCE)

    destroyed(bench.open())

    assert len(list(volume.glob("here/objects/code/*"))) == 3, "nobody knows who needs what"
    go.set()
    request.join()
    opened.runs.wait(refs, timeout=PATIENCE)
    assert [opened.runs.results(ref)[0]["value"] for ref in refs] == ["a", "b"]
    opened.record_ended()
    destroyed(opened)
    assert not list(volume.glob("here/objects/*/*")), "nothing is left for good"


@pytest.mark.expensive
def test_a_launch_waits_for_whoever_is_freeing(
    bench: DatabricksBench, hold_up: HoldUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another project with the same code, so that they share it."""
    monkeypatch.setattr(lease, "_LOOK", 0.02)
    volume = bench.stage_in_a_volume()
    bench.run()
    come, go = hold_up("DELETE */fs/files/*/objects/code/*")
    freeing = begun(lambda: destroyed(bench.open()))
    assert come.wait(PATIENCE)  # it has looked for launches, and found none
    bench.forget_requests()
    folder = bench.project.parent / "other"
    folder.mkdir()
    for name in ("run.yaml", "train.py"):
        (folder / name).write_text((bench.project / name).read_text())
    opened = Session.open(Location(file=folder / "run.yaml", project=folder))
    refs = list[AttemptRef]()
    request = begun(lambda: refs.extend(opened.apply(opened.plan()).launched))

    def looks() -> int:
        return len([one for one in bench.requests() if one.path.endswith("/objects/agent")])

    until(lambda: looks() > 2 or not request.is_alive())
    assert not refs, "it waits"
    go.set()
    freeing.join()
    request.join()
    opened.runs.wait(refs, timeout=PATIENCE)

    assert [opened.runs.status(ref).state for ref in refs] == [AttemptState.SUCCEEDED]
    assert len(list(volume.glob("here/objects/*/*"))) == 2


def test_what_could_not_be_freed_is_freed_by_a_later_gc(bench: DatabricksBench) -> None:
    bench.run()
    stranger = bench.staging / "runs/12345678/hello/1-abcdefgh"
    stranger.mkdir(parents=True)
    (stranger / "staging").touch()
    destroyed(bench.open())
    assert len(list(bench.staging.glob("objects/*/*"))) == 2

    (stranger / "staging").unlink()  # or it has grown old
    bench.open().gc(keep_last=None, older_than=None, dry_run=False)

    assert list(bench.staging.glob("objects/*/*")) == []
