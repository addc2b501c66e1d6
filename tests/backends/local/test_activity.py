"""What ranks of this machine do now: from `monitor.json` and from the ends of their logs."""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.monitor_files import MONITOR
from sgpu_decl.agent.system.secrets import Redactor
from sgpu_decl.backends.host.folder_activity import FolderActivity
from sgpu_decl.backends.monitor_activity import MonitorActivity, gpus_of_ranks, running_ranks
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView, RankView
from sgpu_decl.model.rank_activity import RankActivity
from tests.backends.local.test_logs import Log
from tests.support import some

AT = "2026-01-31T12:00:00.000Z"


def view(ranks: int, state: str = "running", restart: int = 0) -> AttemptView:
    return AttemptView(
        ref=AttemptRef(Address.parse("run.train"), 1),
        state=AttemptState(state),
        backend="local",
        restart=restart,
        ranks=tuple(RankView(rank=rank, node_rank=0, state=state) for rank in range(ranks)),
    )


def looked(folder: Path, ranks: int = 1, **options: Any) -> list[RankActivity]:
    return list(FolderActivity(folder, str).look(view(ranks, **options))[1])


def monitored(folder: Path, **values: object) -> None:
    (folder / MONITOR).write_text(json.dumps({"at": AT, **values}))


def test_use_is_that_which_the_monitor_saw(tmp_path: Path) -> None:
    monitored(
        tmp_path,
        ranks={"0": {"cpu": 1024, "memory": 300}, "1": {"cpu": 4, "memory": 200}},
        devices=[
            {"device": 0, "utilisation": 97, "memory": 60_000, "room": 81_559},
            {"device": 1, "memory": 9, "room": 81_559},
        ],
    )
    at, ranks = FolderActivity(tmp_path, str).look(view(3))
    assert at == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert ranks == [
        RankActivity(rank=0, cpu=102, memory=300, gpu=97, gpu_memory=60_000, gpu_room=81_559),
        RankActivity(rank=1, cpu=0, memory=200, gpu_memory=9, gpu_room=81_559),
        RankActivity(rank=2),
    ]
    assert looked(tmp_path, 3, state="succeeded") == [RankActivity(rank=rank) for rank in range(3)]


def test_the_ranks_of_all_nodes_are_known_whose_monitors_look() -> None:
    seen = {
        "at": AT,
        "ranks": {"0": {"cpu": 1000, "memory": 7}, "1": {"cpu": 10, "memory": 8}},
        "devices": [{"device": 1, "utilisation": 50}],
        "others": {
            "1": {
                "ranks": {"2": {"cpu": 500, "memory": 9}, "3": {"cpu": 20, "memory": 9}},
                "devices": [{"device": 0, "utilisation": 30}],
            },
            "2": None,
        },
    }
    ranks = tuple(RankView(rank=rank, node_rank=rank // 2, state="running") for rank in range(6))
    reader = MonitorActivity(lambda: seen)
    at, found = reader.look(replace(view(6), ranks=ranks))
    assert at is not None
    assert [one.cpu for one in found] == [100, 1, 50, 2, None, None]
    assert [one.gpu for one in found] == [None, 50, 30, None, None, None]
    assert reader.newest_lines(view(4), 0) is None


def test_a_driver_has_all_gpus_of_its_run(tmp_path: Path) -> None:
    devices = [{"device": n, "utilisation": 10 * n, "memory": 5, "room": 9} for n in range(4)]
    assert gpus_of_ranks(devices, 1) == {0: (15, 20, 36)}
    assert {rank: one.gpu for rank, one in gpus_of_ranks(devices, 2).items()} == {0: 5, 1: 25}
    assert {rank: one.gpu for rank, one in gpus_of_ranks(devices, 4).items()} == {
        0: 0, 1: 10, 2: 20, 3: 30,
    }  # fmt: skip
    assert gpus_of_ranks([], 4) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"at": 7, "ranks": [], "devices": {}}',
        '{"at": "soon", "ranks": {"0": 3}, "devices": [3, {}, {"device": "x"}]}',
        '{"ranks": {"0": {"cpu": "many", "memory": 1e999}}, "devices": [{"device": -1}]}',
    ],
)
def test_a_damaged_file_tells_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / MONITOR).write_text(text)
    at, ranks = FolderActivity(tmp_path, str).look(view(1))
    assert at is None
    assert list(ranks) == [RankActivity(rank=0)]


def test_the_last_line_is_that_of_the_stream_that_was_written_last(tmp_path: Path) -> None:
    out, err = Log(tmp_path, 0), Log(tmp_path, 0, "stderr")
    out.write("one\ntwo\n\n")
    os.utime(out.path, ns=(10, 10_000_000_000))
    err.write("bar\r 1 of 9\r 2 of 9 \r")
    os.utime(err.path, ns=(10, 20_000_000_000))
    reader = FolderActivity(tmp_path, str)
    (one,) = reader.look(view(1))[1]
    assert (one.last_line, one.written_at) == (" 2 of 9 ", datetime.fromtimestamp(20, UTC))
    out.write("three")
    (one,) = reader.look(view(1))[1]
    assert one.last_line == "three"
    (one,) = reader.look(view(1, restart=1))[1]  # which has written nothing yet
    assert (one.last_line, one.written_at) == (None, None)


def test_only_the_end_of_a_log_is_read_and_no_half_line_of_it(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    log.write("x" * 10_000 + "secret" + "y" * 4_090)
    hide = Redactor(["secret"])
    reader = FolderActivity(tmp_path, hide)
    assert reader.look(view(1))[1][0].last_line is None  # where it begins is not known
    log.write("\nthe secret\n" + "".join(f"{number:06}\n" for number in range(20_000)))
    (one,) = reader.look(view(1))[1]
    assert one.last_line == "019999"
    lines = some(reader.newest_lines(view(1), 0))
    assert lines[-1] == "019999"
    assert 9_000 < len(lines) < 9_400  # of 64 KiB
    assert all(len(line) == 6 for line in lines)
    log.write("the secret again\n")
    assert reader.newest_lines(view(1), 0)[-1] == "the *** again"


def test_lines_of_both_streams_come_in_the_order_of_time(tmp_path: Path) -> None:
    out, err = Log(tmp_path, 0), Log(tmp_path, 0, "stderr")
    out.write("a\n", at=10)
    err.write("b\n", at=20)
    out.write("c\nd\n", at=30)
    err.write("e", at=40)
    reader = FolderActivity(tmp_path, str)
    assert reader.newest_lines(view(1), 0) == ["a", "b", "c", "d", "e"]


def test_lines_without_times_come_stream_by_stream(tmp_path: Path) -> None:
    out, err = Log(tmp_path, 0), Log(tmp_path, 0, "stderr")
    err.write("b\n")
    out.write("a\n")
    os.utime(out.path, ns=(1, 1))
    reader = FolderActivity(tmp_path, str)
    assert reader.newest_lines(view(1), 0) == ["a", "b"]
    os.utime(err.path, ns=(0, 0))
    assert reader.newest_lines(view(1), 0) == ["b", "a"]


def test_what_a_rank_reports_is_its_own_step(tmp_path: Path) -> None:
    for rank, text in enumerate(['{"step": 12, "total": 30}', '{"step": "x"}', "{"]):
        Log(tmp_path, rank).path.with_name("progress.json").write_text(text)
    assert [one.step for one in looked(tmp_path, 3)] == [12, None, None]


def test_a_pipe_in_the_place_of_a_log_stops_nobody(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    os.mkfifo(log.path)
    (one,) = looked(tmp_path)
    assert one.last_line is None
    assert FolderActivity(tmp_path, str).newest_lines(view(1), 0) == [""]


def test_ranks_that_no_platform_names_are_those_that_monitors_see() -> None:
    seen = {
        "ranks": {"1": {"cpu": 3}, "0": {"cpu": 2}, "2": None},
        "others": {"1": {"ranks": {"3": {"cpu": 1}}}, "x": {"ranks": {"4": {}}}, "2": "no node"},
    }
    found = [(one.rank, one.node_rank, one.state) for one in running_ranks(seen)]
    assert found == [(0, 0, "running"), (1, 0, "running"), (3, 1, "running")]
    garbage: dict[str, Any]
    for garbage in ({}, {"ranks": []}, {"ranks": {"\xb2": {}, "9" * 5000: {}, "-1": {}}}):
        assert running_ranks(garbage) == ()
