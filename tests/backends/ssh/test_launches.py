"""One launch on a box, whatever is killed or lost meanwhile."""

import json
import os
import shutil
import signal

import pytest

from sgpu_decl.testing.contracts.backend_bench import BackendBench
from tests.sampling import sampled
from tests.ssh_server import SshServer
from tests.support import until

WRITER = "sgpu_decl.storing.sqlite.writer,SqliteWriter"
SSH = "sgpu_decl.backends.ssh"
BOX = "sgpu_decl.backends.box"
STEPS = [
    f"{WRITER},begin,after,1",
    f"{BOX}.box_uploads,BoxUploads,code,after,1",
    f"{SSH}.ssh_launcher,SshLauncher,stage,after,1",
    f"{BOX}.ssh_process,SshProcess,call,before,4",
    f"{SSH}.ssh_launcher,SshLauncher,launch,after,1",
    f"{WRITER},launched,before,1",
    f"{WRITER},launched,after,1",
]
LOST = ("code_lacks", "code_objects", "stage", "start")


@pytest.mark.parametrize("step", sampled(STEPS, quick=2))
def test_killed_at_a_step_and_applied_again_there_is_one_run(
    bench: BackendBench, step: str
) -> None:
    bench.declare("value", args={"gate": str(bench.gate)})
    bench.killed(step, "apply", "-y", "--detach")

    run = bench.ran()

    assert (run["attempt"], run["state"], bench.launches) == (1, "succeeded", 1)


@pytest.mark.parametrize("request_name", sampled(LOST, quick=2))
@pytest.mark.parametrize("times", [1, 2])
def test_an_answer_that_is_lost_with_its_connection_is_asked_for_again(
    server: SshServer, bench: BackendBench, request_name: str, times: int
) -> None:
    bench.declare("value", args={"gate": str(bench.gate)})
    bench.done("plan")  # so that the agent is there
    server.lose(request_name, times=times)

    applied = bench("apply", "-y", "--detach")

    assert not (server.folder / "lose").exists()
    assert (applied.code == 0) == (times == 1), applied
    run = bench.ran()
    assert (run["attempt"], run["state"], bench.launches) == (1, "succeeded", 1)


def test_a_run_outlives_the_connection_and_a_box_that_is_away_is_unknown(
    server: SshServer, bench: BackendBench
) -> None:
    bench.declare("hold", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up()
    before = bench.running()
    shutil.rmtree(bench.project / ".sgpu/default/runs")  # as another laptop
    assert bench.running()["state"] == "running"

    server.stop()
    away = bench.status()

    assert (before["state"], away["state"]) == ("running", "running")
    assert away["unavailable"].startswith("cannot reach `box` by ssh")
    assert away["unknown_since"] is not None
    (change,) = bench.done("plan", "-o", "json").data["changes"]
    assert change["action"] == "adopt"

    bench.go()
    server.start()
    assert bench.ended()["state"] == "succeeded"
    assert bench.results() == [(0, {"rank": 0, "n": 0})]


def test_lines_that_were_seen_are_shown_while_the_box_is_away(
    server: SshServer, bench: BackendBench
) -> None:
    bench.declare("hold", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up()
    server.stop()
    unseen = bench("logs", "hello")
    server.start()
    bench.done("logs", "hello")
    server.stop()

    away = bench("logs", "hello")

    assert (unseen.code, unseen.out, away.code, away.out) == (1, "", 1, "up 0\n"), away
    assert "there may be more: cannot reach `box` by ssh" in away.err
    server.start()
    bench.go()
    assert bench.ended()["state"] == "succeeded"


def test_how_a_run_ended_is_known_while_its_box_is_away(
    server: SshServer, bench: BackendBench
) -> None:
    bench.declare("value", args={"gate": str(bench.gate)})
    assert bench.ran()["state"] == "succeeded"
    server.stop()

    assert bench.status()["state"] == "succeeded"


def test_another_laptop_with_the_same_state_sees_all(bench: BackendBench) -> None:
    bench.declare("hold", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up()
    shutil.rmtree(bench.project / ".sgpu/default/runs")

    assert bench.running()["state"] == "running"
    assert "up 0" in bench.done("logs", "hello").out
    bench.done("cancel", "hello")
    assert bench.status()["state"] == "cancelled"


def test_a_follower_sees_lines_as_they_come_over_a_connection_that_is_cut(
    server: SshServer, bench: BackendBench
) -> None:
    bench.declare("hold", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up()
    with bench.backend() as backend:
        log = backend.attempts.logs(bench.record("hello"), ranks=None, follow=True)
        lines, ended = log.read()
        assert ([line.text for line in lines], ended) == (["up 0"], False)
        server.cut()
        bench.go()
        until(lambda: log.read()[1])


def test_a_supervisor_that_is_killed_on_the_box_leaves_a_lost_run_and_nothing_else(
    server: SshServer, bench: BackendBench
) -> None:
    bench.declare("hold", args={"gate": str(bench.gate)})
    bench.launched()
    bench.up()
    (identity,) = (server.home / "sgpu/states").glob("*/runs/hello/1/identity.json")

    os.kill(json.loads(identity.read_text())["pid"], signal.SIGKILL)

    run = bench.ended()
    assert (run["state"], run["first_cause"]["class"]) == ("lost", "supervisor_lost")
    assert bench.status()["state"] == "lost"


def test_ranks_have_the_environment_of_the_box_and_not_that_of_the_laptop(
    server: SshServer, bench: BackendBench
) -> None:
    (bench.project / "train.py").write_text(
        "import os\ndef main(): return [os.environ.get(n) for n in ('HOME', 'OF_THE_LAPTOP')]\n"
    )
    bench.declare("main")
    assert bench.ran()["state"] == "succeeded"

    assert bench.results() == [(0, [str(server.home), None])]


def test_a_changed_file_alone_is_sent(server: SshServer, bench: BackendBench) -> None:
    for number in range(300):
        (bench.project / f"module_{number}.py").write_text(f"VALUE = {number}\n")
    bench.declare("value", args={"gate": str(bench.gate)})
    assert bench.ran()["state"] == "succeeded"
    contents = server.home / "sgpu/code"
    before = {file for file in contents.rglob("*") if file.is_file()}
    (bench.project / "module_7.py").write_text("VALUE = 'another'\n")

    assert bench.ran()["attempt"] == 2

    new = {file for file in contents.rglob("*") if file.is_file()} - before
    assert sorted(file.read_text() for file in new if file.suffix != ".json") == [
        "VALUE = 'another'\n"
    ]


@pytest.mark.parametrize("lost", ["all", "a content", "half of a content", "what is in it"])
def test_code_that_was_lost_on_the_box_is_sent_again(
    server: SshServer, bench: BackendBench, lost: str
) -> None:
    bench.declare("value", args={"gate": str(bench.gate)})
    assert bench.ran()["state"] == "succeeded"
    contents = server.home / "sgpu/code"
    (content,) = (file for file in contents.glob("??/*") if b"def value" in file.read_bytes())
    if lost == "all":
        shutil.rmtree(contents)
    elif lost == "a content":
        content.unlink()
    elif lost == "half of a content":
        content.write_bytes(content.read_bytes()[:100])
    else:
        content.write_bytes(b"#" * content.stat().st_size)
    bench.declare("value", args={"gate": str(bench.gate), "n": 1})

    assert bench.ran()["state"] == "succeeded"
    assert bench.launches == 2


def test_gc_keeps_what_a_box_that_is_away_has_and_frees_it_later(
    server: SshServer, bench: BackendBench
) -> None:
    bench.declare("value", args={"gate": str(bench.gate)})
    assert bench.ran()["state"] == "succeeded"
    gc = ("gc", "-y", "--all", "--keep-last", "0", "-o", "json")
    server.stop()
    away = bench.done(*gc).data
    server.start()

    assert (away["attempts"], [one["reason"] for one in away["kept"]]) == ([], ["unreachable"])
    assert bench.done(*gc).data["attempts"] == ["hello#1"]
    assert list((server.home / "sgpu/states").glob("*/runs/hello/*")) == []


def test_code_that_nothing_used_for_weeks_is_deleted(
    server: SshServer, bench: BackendBench
) -> None:
    bench.declare("value", args={"gate": str(bench.gate)})
    assert bench.ran()["state"] == "succeeded"
    contents = server.home / "sgpu/code"
    for file in contents.rglob("*"):
        os.utime(file, (0, 0))
    (bench.project / "other.py").write_text("VALUE = 1\n")
    bench.declare("value", args={"gate": str(bench.gate), "n": 1})
    assert bench.ran()["state"] == "succeeded"

    bench.done("gc", "-y", "--all", "--keep-last", "0")

    assert len(list(contents.glob("*.json"))) == 1
    assert sorted(file.read_text()[:9] for file in contents.glob("??/*")) == [
        "VALUE = 1", "import os",
    ]  # fmt: skip
