"""Frames of `sgpu top`, from values alone."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.text import Text

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_details import FirstCause, RunProgress
from sgpu_decl.model.attempt_view import AttemptView, RankView
from sgpu_decl.model.rank_activity import RankActivity, WatchedRun
from sgpu_decl.views.rank_rows import bar
from sgpu_decl.views.terminal import columns
from sgpu_decl.views.top_frame import ranks_per_line, run_frame, runs_frame, too_small

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
Golden = Callable[[str, str], None]


def view(name: str, ranks: int, *, state: str = "running", took: int = 724) -> AttemptView:
    return AttemptView(
        ref=AttemptRef(Address.parse(f"run.{name}"), 8),
        backend="local",
        state=AttemptState(state),
        started_at=None if state == "queued" else NOW - timedelta(seconds=took),
        ranks=tuple(
            RankView(rank=rank, node_rank=0, state="running")
            for rank in range(ranks if state != "queued" else 0)
        ),
        progress=RunProgress(
            step=1200, total=3000, percent=40.0, per_second=1.67, seconds_left=1080,
            metrics={"loss": 1.83},
        )
        if state == "running"
        else None,
    )  # fmt: skip


def on_gpu(rank: int, **values: object) -> RankActivity:
    known = RankActivity(
        rank=rank,
        step=1200,
        cpu=102 + rank,
        memory=5_400 + 10 * rank,
        gpu=97 - rank % 4,
        gpu_memory=62_000 + 100 * rank,
        gpu_room=81_559,
        last_line=f"step 1200 of rank {rank}: loss 1.83, a line that is longer than the screen",
        written_at=NOW - timedelta(seconds=2 + rank % 3),
    )
    return replace(known, **values)  # type: ignore[arg-type]


def run(ranks: int, *, differs: int | None = None) -> WatchedRun:
    found = [on_gpu(rank) for rank in range(ranks)]
    if differs is not None:
        found[differs] = on_gpu(differs, gpu=12, differs="GPU 12 %, others 96 %", step=1180)
    return WatchedRun(
        view=view("train", ranks), gpus=ranks, gpu_type="H100", limit_seconds=21_600, told=True,
        measured_at=NOW, ranks=tuple(found),
    )  # fmt: skip


def text(lines: list[Text], width: int, height: int | None = None) -> str:
    shown = [line.plain for line in lines]
    assert max(map(columns, shown)) <= width
    assert height is None or len(shown) == height
    return "\n".join([*shown, ""])


LOG = [f"step {step} loss {2 - step / 3000:.3f}" for step in range(1170, 1200)]


def test_one_rank(golden: Golden) -> None:
    lines = run_frame(run(1), LOG, now=NOW, width=80, height=24, chosen=0)
    golden("top_1_rank.txt", text(lines, 80, 24))


def test_eight_ranks_of_which_one_differs(golden: Golden) -> None:
    lines = run_frame(run(8, differs=5), LOG, now=NOW, width=100, height=24, chosen=5, back=True)
    golden("top_8_ranks.txt", text(lines, 100, 24))


def test_64_ranks_fit_into_80_columns_and_24_lines(golden: Golden) -> None:
    known = run(64, differs=37)
    ranks = [
        replace(one, state="succeeded" if one.rank == 63 else one.state) for one in known.view.ranks
    ]
    known = replace(known, view=replace(known.view, ranks=tuple(ranks)))
    lines = run_frame(known, LOG, now=NOW, width=80, height=24, chosen=40)
    golden("top_64_ranks.txt", text(lines, 80, 24))
    assert ranks_per_line(known, now=NOW, width=80, height=24) == 8


def test_64_ranks_on_cpus_fit_too(golden: Golden) -> None:
    known = run(64)
    bare = [replace(one, gpu=None, gpu_memory=None, gpu_room=None) for one in known.ranks]
    known = replace(known, gpus=0, gpu_type="CPU", ranks=tuple(bare))
    lines = run_frame(known, [], now=NOW, width=80, height=24, chosen=0)
    golden("top_64_ranks_on_cpus.txt", text(lines, 80, 24))


def test_of_thousands_of_ranks_those_around_the_chosen_one_are_shown() -> None:
    lines = run_frame(run(2000), LOG, now=NOW, width=80, height=24, chosen=1500)
    shown = text(lines, 80, 24)
    assert "2,000 ranks: 2,000 running; 1,470 to 1,535 are shown; use and memory" in shown
    assert ">1500 " in shown
    assert "log of rank 1500" in shown


def test_all_runs_of_a_project(golden: Golden) -> None:
    failed = replace(
        view("broken", 2, state="failed"),
        ended_at=NOW,
        first_cause=FirstCause(
            rank=1, failure="exception", summary="ValueError: no such luck", traceback=None,
            simultaneous=(),
        ),
    )  # fmt: skip
    queued = replace(view("next", 2, state="queued"), waiting_for="gpus")
    far = replace(run(8), view=replace(view("far", 8), backend="databricks"), told=False, ranks=())
    runs = [
        replace(run(2), view=failed, ranks=()),
        far,
        replace(run(2), view=queued, ranks=()),
        run(8, differs=5),
    ]
    lines = runs_frame(runs, LOG, now=NOW, width=80, height=24, chosen=3)
    golden("top_runs.txt", text(lines, 80, 24))
    assert "all runs" not in text(run_frame(far, [], now=NOW, width=80, height=24, chosen=0), 80)


def test_a_run_whose_backend_does_not_tell(golden: Golden) -> None:
    far = replace(run(4), view=replace(view("far", 4), backend="databricks"), told=False, ranks=())
    golden("top_untold.txt", text(run_frame(far, LOG, now=NOW, width=80, height=24, chosen=2), 80))


def test_of_many_runs_those_around_the_chosen_one_are_shown() -> None:
    many = [replace(run(1), view=view(f"r{number:03}", 1)) for number in range(100)]
    shown = text(runs_frame(many, LOG, now=NOW, width=80, height=24, chosen=50), 80, 24)
    assert "100 runs: 100 running, of which 44 to 58 are shown" in shown
    assert "\n> r050#8" in shown


def test_nothing_is_active() -> None:
    assert text(runs_frame([], now=NOW, width=80), 80) == "no run is active\n"
    shown = text(runs_frame([], now=NOW, width=80, height=24), 80, 24)
    assert shown.startswith("no run is active\n")
    assert shown.endswith("\nq: leave\n")


def test_a_frame_for_a_script_has_a_row_for_each_rank(golden: Golden) -> None:
    golden("top_once.txt", text(run_frame(run(64, differs=37), now=NOW, width=120), 120))


@pytest.mark.parametrize(
    ("measured", "words"),
    [(None, "nothing is measured yet"), (60, "what ranks use was measured 1 m ago"), (3, "")],
)
def test_a_measurement_that_is_lacking_or_old_is_named(measured: int | None, words: str) -> None:
    at = None if measured is None else NOW - timedelta(seconds=measured)
    shown = text(run_frame(replace(run(1), measured_at=at), now=NOW, width=80), 80)
    assert ("measured" in shown) == bool(words)
    assert words in shown


def test_what_ranks_write_obeys_nobody() -> None:
    line = "a\x1b[31mred\x1b[0m\x1b]0;title\x07\ttab\rnew 名前" * 3
    one = replace(run(1), ranks=(on_gpu(0, last_line=line),))
    shown = run_frame(one, [line, "hf_" + "a" * 34], now=NOW, width=80, height=24, chosen=0)
    assert "\x1b" not in text(shown, 80, 24)
    assert "hf_aaaa" not in text(shown, 80, 24)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("height", [12, 16, 24, 60])
@pytest.mark.parametrize("ranks", [1, 3, 8, 64, 512])
def test_every_frame_fits(width: int, height: int, ranks: int) -> None:
    known = run(ranks, differs=0)
    shown = run_frame(known, LOG, now=NOW, width=width, height=height, chosen=ranks - 1, back=True)
    assert f">{ranks - 1}" in text(shown, width, height).replace(" ", "").replace("!", "")
    shown = runs_frame([known] * ranks, LOG, now=NOW, width=width, height=height, chosen=ranks - 1)
    assert "\n>!train#8" in text(shown, width, height)


def test_a_terminal_may_be_too_small() -> None:
    assert too_small(39, 24) == "the terminal has 39 columns and 24 lines, and 40 and 12 are needed"
    assert too_small(40, 12) == ""


def test_a_bar_is_full_at_the_end() -> None:
    assert [bar(share, 4) for share in (-1, 0, 0.5, 1, 2)] == [
        "░░░░", "░░░░", "██░░", "████", "████",
    ]  # fmt: skip
