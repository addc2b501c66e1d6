from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.attempt_details import FirstCause
from sgpu_decl.model.attempt_view import (
    AttemptView,
    RankView,
    RunHistory,
    status_fields,
    time_text,
    view_in,
)
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.ray_size import RayStatus
from sgpu_decl.views.progress_text import silence_line, state_line
from sgpu_decl.views.status_text import (
    ending,
    failure,
    links,
    nothing_live,
    run_details,
    status_table,
)
from tests.storing.conftest import make_launch
from tests.support import some

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
FAILED = AttemptView(
    ref=AttemptRef(Address.run("train"), 8),
    backend="local",
    state=AttemptState.FAILED,
    started_at=datetime(2026, 1, 2, 11, 0, 0, tzinfo=UTC),
    ended_at=datetime(2026, 1, 2, 11, 0, 3, tzinfo=UTC),
    exit_code=1,
    failure=FailureClass.EXCEPTION,
    ranks=(RankView(rank=0, node_rank=0, state="failed", exit_code=1),),
    first_cause=FirstCause(
        rank=0,
        failure="exception",
        summary="ValueError: no\x1b[2J",
        traceback="Traceback:\n  x\nValueError: no\n",
    ),
    links={"folder": "/f"},
)


def test_the_table_names_run_state_and_cause() -> None:
    head, line = status_table([FAILED], now=NOW, colour=False).split("\n")
    assert head.split() == ["RUN", "STATE", "BACKEND", "STARTED", "TOOK"]
    assert line.split("  ")[0] == "train#8"
    assert "1 h ago" in line
    assert "rank 0: ValueError: no\\x1b[2J" in line


def test_a_run_that_does_not_answer_is_unknown_since_it_was_seen() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    view = replace(FAILED, state=AttemptState.RUNNING)
    away = replace(view, unavailable="no route", unknown_since=now - timedelta(minutes=2))

    assert silence_line(away, now=now) == (
        f"{view.ref} unknown since 2 m ago, asked again until it answers: no route"
    )
    assert silence_line(view, now=now) == f"{view.ref} answers again: running"


def test_an_empty_table_says_so() -> None:
    assert nothing_live([]) == "no runs yet"


def test_the_ending_says_how_long_and_why() -> None:
    assert ending(FAILED, now=NOW, colour=False) == (
        "train#8 failed after 3 s, exit code 1: rank 0: ValueError: no\\x1b[2J"
    )


def test_the_dashboard_of_a_ray_cluster_is_shown_while_it_runs() -> None:
    cluster = {"version": "2.60.0", "nodes": 1}
    dashboard = {
        "dashboard": "http://127.0.0.1:8265",
        "token_file": "/tmp/r/token",
        "host": "gpu-1",
    }
    seen = {"state": "running", "ray": {**cluster, **dashboard}}
    record = some(make_launch("sweep", 1).intent.launch)
    view = view_in(record, seen)
    assert view.ray == RayStatus(version="2.60.0", nodes=1, **dashboard)
    assert status_fields(view)["ray"] == seen["ray"]
    _, line = status_table([view], now=NOW, colour=False).split("\n")
    assert line.endswith("Ray dashboard http://127.0.0.1:8265 on gpu-1")
    assert state_line(view) == "sweep#1 running; Ray dashboard http://127.0.0.1:8265 on gpu-1"
    assert links(view) == [(f"ray.{name}", to) for name, to in dashboard.items()]

    over = view_in(record, {**seen, "state": "succeeded"})
    assert status_fields(over)["ray"] == {**cluster, **dict.fromkeys(dashboard)}
    assert (links(over), state_line(over)) == ([], "sweep#1 succeeded")
    assert "ray" not in status_fields(FAILED)


def test_an_attempt_of_another_machine_is_shown_with_the_age_of_its_record() -> None:
    where = "it was launched on gpu-1, in /home/ann/p"
    recorded = replace(
        FAILED,
        state=AttemptState.RUNNING,
        unavailable=where,
        unknown_since=NOW - timedelta(hours=3),
    )
    words = f"as last recorded 3 h ago: {where}"
    assert ending(recorded, now=NOW, colour=False).endswith(f", {words}")
    assert words in status_table([recorded], now=NOW, colour=False)
    assert recorded.unknown_since is not None
    assert status_fields(recorded)["unknown_since"] == time_text(recorded.unknown_since)


def test_colour_only_where_asked() -> None:
    assert "\x1b[31mfailed\x1b[0m" in ending(FAILED, now=NOW, colour=True)


def test_the_traceback_is_indented() -> None:
    assert failure(FAILED) == "    Traceback:\n      x\n    ValueError: no"
    assert failure(replace(FAILED, first_cause=None)) == ""


def test_a_run_whole_shows_ranks_spec_and_history() -> None:
    attempt = make_launch("train", 8, state=AttemptState.FAILED).attempt
    run = RunHistory(view=FAILED, spec=Spec('{"gpus":1}'), attempts=((attempt, FAILED),))
    text = run_details(run, now=NOW, colour=False)
    for part in ("ranks:\n  0: failed (1)", "spec:\n  gpus: 1", "history:\n  #8 failed"):
        assert part in text
