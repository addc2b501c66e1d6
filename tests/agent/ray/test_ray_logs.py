"""Which logs of Ray are kept, and what is shown of them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.agent.ray import ray_logs
from sgpu_decl.agent.ray.ray_logs import fatal_message, keep_logs, last_lines

Keep = Callable[..., dict[str, str]]


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keep:
    """Keep these logs, from the oldest to the newest, as those of a start of the node; return what
    is there of all starts."""
    monkeypatch.setattr(ray_logs, "_MOST_BYTES", 20)
    monkeypatch.setattr(ray_logs, "_MOST_OF_ONE", 12)

    def keep(restart: int, logs: dict[str, str]) -> dict[str, str]:
        folder, kept = tmp_path / f"logs-{restart}", tmp_path / "kept"
        for age, (name, text) in enumerate(logs.items()):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            os.utime(path, (age, age))
        (folder / "link.out").symlink_to(next(iter(logs)))
        (folder / "empty.out").touch()
        target, *earlier = (str(kept / str(number)) for number in range(restart, -1, -1))
        count = keep_logs(str(folder), target, earlier, lambda text: text.replace("c", "*"))
        assert count == sum(path.is_file() for path in Path(target).rglob("*"))
        files = (path for path in sorted(kept.rglob("*")) if path.is_file())
        return {str(path.relative_to(kept)): path.read_text() for path in files}

    return keep


def test_the_newest_logs_are_kept_as_far_as_they_fit(keep: Keep) -> None:
    logs = {"old.out": "a" * 10, "below/middle.out": "b" * 12, "new.out": "cccc"}
    assert keep(0, logs) == {"0/below/middle.out": "b" * 12, "0/new.out": "****"}


def test_of_a_large_log_the_last_lines_are_kept(keep: Keep) -> None:
    logs = {"first.out": "b\n" * 10, "large.out": "aaaa\n" * 10, "line.out": "d" * 13}
    assert keep(0, logs) == {"0/first.out": "b\n" * 5, "0/large.out": "aaaa\n" * 2}


def test_the_logs_of_all_starts_of_a_node_share_the_room(keep: Keep) -> None:
    assert keep(0, {"a.out": "a" * 6, "b.out": "b" * 6}).keys() == {"0/a.out", "0/b.out"}
    assert keep(1, {"a.out": "a" * 6}).keys() == {"0/a.out", "0/b.out", "1/a.out"}
    assert keep(2, {"a.out": "a" * 6}).keys() == {"0/b.out", "1/a.out", "2/a.out"}


def test_the_last_lines_are_those_of_the_last_file(tmp_path: Path) -> None:
    out, err = tmp_path / "raylet.out", tmp_path / "raylet.err"
    out.write_text("".join(f"out {number}\n" for number in range(30)))
    err.write_text("\nerr\n[state-dump] numbers\n")
    text = last_lines(str(out), str(err))
    assert text is not None
    assert text.splitlines() == [*(f"out {number}" for number in range(11, 30)), "err"]
    assert last_lines(str(tmp_path / "none")) is None


# As a raylet of Ray 2.60 writes it into both of its logs; shortened.
CHECK = """\
[2026-11-29 01:45:25,480 C 10181 10181] (raylet) memory_monitor_utils.cc:739:  An unexpected \
system state has occurred. You have likely discovered a bug in Ray. Please report this issue at \
https://github.com/ray-project/ray/issues and we'll work with you to fix it. Check failed: \
RAY_PREDICT_TRUE(_left_ <= _right_)  5 vs 1Invalid configuration
"""
FRAMES = """\
*** StackTrace Information ***
/x/ray/core/src/ray/raylet/raylet(+0xf0b4b1) [0x55] ray::operator<<()
/x/ray/core/src/ray/raylet/raylet(main+0x2e1) [0x55] main
"""


def test_a_failed_check_is_shown_once_without_its_frames(tmp_path: Path) -> None:
    out, err = tmp_path / "raylet.out", tmp_path / "raylet.err"
    out.write_text("first\n" + CHECK + FRAMES)
    err.write_text(CHECK + FRAMES)
    text = last_lines(str(out), str(err))
    assert text == f"first\n{CHECK.strip()}"
    assert fatal_message(text) == (
        "Check failed: RAY_PREDICT_TRUE(_left_ <= _right_)  5 vs 1Invalid configuration"
    )
    assert fatal_message("first\n[2026-11-29 01:45:25 I 1 1] (raylet) x.cc:1: up") is None


# As the head of Ray 2.60 writes it each minute; shortened.
STATE = """\
[2026-11-27 21:37:10,779 I 20143 20143] (gcs_server) gcs_server.cc:1322: Main service Event stats:


Global stats: 16 total (2 active)
Queueing time: mean = 7.50ms, max = 111.06ms, min = 0.00ms, total = 120.05ms
Execution time:  mean = 13.92ms, total = 222.73ms
Event stats:
\tGcsInMemoryStore.GetAll - 6 total (0 active), Execution time: mean = 0.01ms, total = 0.07ms
[2026-11-27 21:37:10,780 I 20143 20143] (gcs_server) gcs_server.cc:890: Gcs Debug state:

GcsNodeManager:
- RegisterNode request count: 1
[runtime env manager] URIs reference table:
"""


def test_what_the_head_writes_each_minute_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "gcs_server.out"
    first = "[2026-11-27 21:37:10,779 I 1 1] (gcs_server) x.cc:1: Registering new node."
    crash = "*** SIGSEGV received at time=1763 on cpu 1 ***\n    @ 0x7f0 (unknown)"
    log.write_text(f"{first}\n{STATE * 400}{crash}\n")
    assert last_lines(str(log)) == f"{first}\n{crash}"
