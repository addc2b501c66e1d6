"""Hangs of real ranks: which rank the others wait for, and where it is."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_status import request_cancel
from sgpu_decl.agent.attempt.monitor_files import MONITOR
from sgpu_decl.agent.system.processes import variables
from sgpu_decl.rendering.spec import Entry, IdleSpec, Warm
from tests.support import require

pytestmark = pytest.mark.torch
Make = Callable[..., Any]

PROGRAMS = Path(__file__).parents[2] / "hanging_programs.py"
HEALTHY = PROGRAMS.with_name("healthy_programs.py")
WARM = Warm(
    imports=(
        ("torch", ()),
        ("torch.distributed", ()),
        ("torch.utils.data", ("DataLoader", "Dataset")),
    )
)
expensive = pytest.mark.expensive


def place(program: str) -> str:
    """`main.py:LINE` of the line that a program is to be found at."""
    lines = PROGRAMS.read_text().splitlines()
    if program in ("other_shape", "other_type"):
        program = "_as_many_steps_as_told"
    first = next(at for at, line in enumerate(lines) if line.startswith(f"def {program}("))
    here = next(at for at in range(first, len(lines)) if lines[at].endswith("# HERE"))
    return f"main.py:{here + 1}"


def launched(make_attempt: Make, program: str, source: Path = PROGRAMS, **fields: Any) -> Any:
    entry = Entry(kind="script", path="main.py", args=(program,))
    given = {"world_size": 3, "warm": WARM, "hang_after": 1.5, "hang": "stop", **fields}
    return make_attempt(source.read_text(), entry=entry, **given).launch()


def measured(attempt: Any) -> datetime | None:
    """When its monitor looked last."""
    text = attempt.text(MONITOR)
    return datetime.fromisoformat(json.loads(text)["at"]) if text else None


@pytest.mark.parametrize(
    ("program", "kind", "ranks"),
    [
        ("never_enters", "missing", [2]),
        ("other_order", "order", [1]),
        ("is_stopped", "stopped", [1]),
        pytest.param("waits_for_data", "missing", [1], marks=expensive),
        pytest.param("one_evaluates", "order", [0], marks=expensive),
        pytest.param("other_shape", "shape", [2], marks=expensive),
        pytest.param("other_type", "shape", [2], marks=expensive),
        pytest.param("ends_early", "order", [1], marks=expensive),
        pytest.param("leaves_early", "missing", [1], marks=expensive),
        pytest.param("groups_crossed", "missing", [1], marks=expensive),
        pytest.param("nobody_sends", "missing", [1], marks=expensive),
        pytest.param("never_joins", "missing", [1], marks=expensive),
        pytest.param("waits_for_a_lock", "missing", [2], marks=expensive),
        pytest.param("holds_the_interpreter", "missing", [2], marks=expensive),
    ],
)
def test_the_rank_that_the_others_wait_for_is_named(
    make_attempt: Make, program: str, kind: str, ranks: list[int]
) -> None:
    require("torch")
    attempt = launched(make_attempt, program)
    ended = attempt.wait()
    assert (ended["state"], ended["class"], ended["exit_code"]) == ("failed", "hung", 124)
    (event,) = attempt.events("hang")[-1:]
    summary = ended["first_cause"]["summary"]
    assert (event["kind"], event["ranks"]) == (kind, ranks), summary
    assert ended["first_cause"]["rank"] == ranks[0]
    assert f"rank {ranks[0]} " in summary
    if program != "is_stopped":
        assert place(program) in summary
    print(summary)
    attempt.check()


@pytest.mark.parametrize(
    ("program", "waits_for"),
    [
        ("evaluation_on_rank_0", 0),
        pytest.param("uneven_data", None, marks=expensive),
        pytest.param("no_group", None, marks=expensive),
        pytest.param("evaluation_on_the_last_rank", 2, marks=expensive),
        pytest.param("compilation_in_a_child", 1, marks=expensive),
        pytest.param("checkpoint", 0, marks=expensive),
        pytest.param("long_first_step", 1, marks=expensive),
        pytest.param("slow_data", 1, marks=expensive),
        pytest.param("data_in_the_process", 2, marks=expensive),
        pytest.param("no_collectives", None, marks=expensive),
        pytest.param("a_thread_works", 1, marks=expensive),
        pytest.param("subgroups", None, marks=expensive),
        pytest.param("many_more_in_one_group", None, marks=expensive),
        pytest.param("point_to_point", None, marks=expensive),
        pytest.param("waits_to_receive", 0, marks=expensive),
        pytest.param("asynchronous", None, marks=expensive),
        pytest.param("objects_of_any_size", None, marks=expensive),
        pytest.param("a_slow_network", 0, marks=expensive),
        pytest.param("late_to_join", 2, marks=expensive),
        pytest.param("two_programs_in_turn", 1, marks=expensive),
    ],
)
def test_ranks_that_wait_for_one_that_works_are_no_hang(
    make_attempt: Make, program: str, waits_for: int | None
) -> None:
    require("torch")
    idle = IdleSpec(below=5.0, seconds=3.0)
    attempt = launched(make_attempt, program, HEALTHY, hang_after=2.0, idle=idle)
    attempt.until(lambda: measured(attempt) or not attempt.carriers())
    begun = measured(attempt)
    assert begun is not None, attempt.log(0, "stderr")
    enough = begun + timedelta(seconds=5)
    waits: list[dict[str, Any]] = []

    def seen() -> bool:
        waits.extend(filter(None, [attempt.read().get("rank_wait")]))
        ended = attempt.read()["state"] not in ("starting", "running")
        return ended or (
            (measured(attempt) or begun) >= enough and (waits_for is None or waits != [])
        )

    attempt.until(seen)
    (attempt.folder / "output" / "go").touch()
    ended = attempt.wait()
    assert ended["state"] == "succeeded", (ended["first_cause"], attempt.log(0, "stderr"))
    assert attempt.events("hang") == []
    if program != "a_slow_network":  # which waits: it does use next to no processor
        assert attempt.events("idle") == []
    assert not any(wait["alarm"] for wait in waits), waits
    if waits_for is not None:
        print(waits[-1]["summary"])
        assert all(waits_for in wait["ranks"] for wait in waits), waits
    attempt.check()


def test_a_rank_of_another_node_is_named(make_nodes: Make) -> None:
    require("torch")
    entry = Entry(kind="script", path="main.py", args=("never_enters",))
    nodes = make_nodes(
        PROGRAMS.read_text(), entry=entry, world_size=4, warm=WARM, hang_after=1.5, hang="stop"
    ).all()
    assert nodes.wait() == [124, 124]
    ended = nodes.read()
    assert (ended["class"], ended["first_cause"]["rank"]) == ("hung", 2)
    summary = ended["first_cause"]["summary"]
    assert summary.startswith("rank 2 (node 1) has not entered all_reduce #4 (main.py:")
    assert "3 ranks wait there for " in summary
    assert place("never_enters") in summary
    others, last = ended["first_cause"]["traceback"].split("\n\nrank 2 differs from the others: ")
    assert others.startswith("ranks 0-1, 3 have the same stacks:\n")
    assert last.partition("\n")[0].endswith("in never_enters:")


@expensive
def test_a_progress_timeout_ends_a_hang_with_what_is_known(make_attempt: Make) -> None:
    require("torch")
    attempt = launched(
        make_attempt, "never_enters", hang="warn", hang_after=1.0, progress_timeout=6.0
    )
    ended = attempt.wait()
    assert (ended["class"], ended["first_cause"]["rank"]) == ("hung", 2)
    assert place("never_enters") in ended["first_cause"]["summary"]
    assert ended["first_cause"]["stacks"] != []


@expensive
def test_a_warning_shows_while_the_run_goes_on(make_attempt: Make) -> None:
    require("torch")
    attempt = launched(make_attempt, "never_enters", hang="warn")
    attempt.until(lambda: (attempt.read().get("rank_wait") or {}).get("alarm"))
    wait = attempt.read()["rank_wait"]
    assert (wait["kind"], wait["ranks"], wait["waiting"]) == ("missing", [2], [0, 1])
    assert "rank 2 has not entered all_reduce #4" in attempt.text("agent.log")
    assert attempt.read()["state"] == "running"
    request_cancel(attempt.folder)
    assert attempt.wait()["state"] == "cancelled"


@expensive
def test_ranks_are_not_asked_if_the_recorder_is_off(make_attempt: Make) -> None:
    require("torch")
    attempt = launched(make_attempt, "evaluation_on_rank_0", HEALTHY, flight_recorder=False)
    attempt.until(lambda: measured(attempt))
    environment = variables(attempt.rank_pid(1))
    assert "TORCH_FR_BUFFER_SIZE" not in environment
    assert "SGPU_ASKED_AT" not in environment
    (attempt.folder / "output" / "go").touch()
    assert attempt.wait()["state"] == "succeeded"


@expensive
@pytest.mark.parametrize("records", ["1000000", "0"])
def test_the_size_of_the_record_is_the_user_s(make_attempt: Make, records: str) -> None:
    """What is too large to be copied, or off, leaves the places of the ranks."""
    require("torch")
    attempt = launched(make_attempt, "never_enters", env={"TORCH_FR_BUFFER_SIZE": records})
    cause = attempt.wait()["first_cause"]
    assert (cause["class"], cause["rank"]) == ("hung", 2)
    assert cause["summary"].startswith("rank 2 has not come to all_reduce (main.py:")
