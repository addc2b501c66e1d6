"""Where ranks of a run with `resume` find what an earlier start left."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.previous_output import BROUGHT, left_output, previous_output
from sgpu_decl.agent.node.earlier_output import absent_nodes, bring_earlier_output


def leave(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{folder.parent.name}/{name}")


def spec(run: Path, attempt: int, project: str = "/p") -> dict[str, Any]:
    folder = run / str(attempt)
    (folder / "output").mkdir(parents=True, exist_ok=True)
    return {
        "run_dir": str(folder),
        "output_dir": str(folder / "output"),
        "project_dir": project,
        "attempt": attempt,
        "resume": True,
    }


def test_the_newest_earlier_attempt_that_left_a_file_counts(tmp_path: Path) -> None:
    own = spec(tmp_path, 12)
    assert previous_output(own, own=False) is None
    leave(tmp_path / "2" / "output", "a")
    leave(tmp_path / "9" / "output", "deep/b")
    (tmp_path / "10" / "output" / "empty").mkdir(parents=True)
    leave(tmp_path / "13" / "output", "later")
    (tmp_path / "x").mkdir()
    assert previous_output(own, own=False) == str(tmp_path / "9" / "output")


def test_ranks_that_are_started_again_find_their_own_files(tmp_path: Path) -> None:
    own = spec(tmp_path, 3)
    leave(tmp_path / "2" / "output", "a")
    assert not left_output(own)
    leave(tmp_path / "3" / "output", "b")
    assert left_output(own)
    assert not left_output({**own, "resume": False})
    assert previous_output(own, own=True) == str(tmp_path / "3" / "output")


def test_a_node_looks_at_nothing_but_what_was_brought_to_it(tmp_path: Path) -> None:
    leave(tmp_path / "1" / "output", "of somebody else")
    own = spec(tmp_path, 2, project="")
    assert previous_output(own, own=False) is None
    leave(tmp_path / "2" / BROUGHT, "a")
    assert previous_output(own, own=False) == str(tmp_path / "2" / BROUGHT)


def uploaded(node: Path, *names: str, done: bool = True, parts: object = None) -> None:
    node.mkdir(parents=True)
    leave(node / "output", *names)
    if done:
        (node / "done").write_text(json.dumps({"v": 1, "parts": parts or {}}))


def brought(target: Path) -> dict[str, str]:
    return {
        str(path.relative_to(target)): path.read_text()
        for path in sorted(target.rglob("*"))
        if path.is_file()
    }


def test_files_of_all_nodes_come_from_the_newest_attempt_that_left_some(tmp_path: Path) -> None:
    run, target = tmp_path / "run", tmp_path / "target"
    uploaded(run / "2-aaaaaaaa/back/0/node_0", "old")
    uploaded(run / "10-bbbbbbbb/back/0/node_0", "older")
    uploaded(run / "10-bbbbbbbb/back/1/node_0", "a", "same")
    uploaded(run / "10-bbbbbbbb/back/1/node_1", "same", "deep/b")
    uploaded(run / "10-bbbbbbbb/back/2/node_0", "half", done=False)
    uploaded(run / "11-cccccccc/back/0/node_0")
    uploaded(run / "13-dddddddd/back/0/node_0", "later")
    bring_earlier_output(str(run / "12-eeeeeeee/back"), str(target))
    assert brought(target) == {
        "a": "node_0/a",
        "same": "node_0/same",
        "node_1/same": "node_1/same",
        "deep/b": "node_1/deep/b",
    }


def test_an_earlier_attempt_of_the_platform_at_this_launch_comes_first(tmp_path: Path) -> None:
    run, target = tmp_path / "run", tmp_path / "target"
    uploaded(run / "1-aaaaaaaa/back/0/node_0", "before")
    uploaded(run / "2-bbbbbbbb/back/0/node_0", "preempted")
    (run / "2-bbbbbbbb/back/1").mkdir()
    bring_earlier_output(str(run / "2-bbbbbbbb/back"), str(target))
    assert list(brought(target)) == ["preempted"]


def test_a_file_in_parts_is_put_together_and_checked(tmp_path: Path) -> None:
    node = tmp_path / "1-aaaaaaaa/back/0/node_0"
    parts = [b"abc", b"de"]
    index = {
        "bytes": 5,
        "part": 3,
        "folder": "parts/0",
        "sha256": [hashlib.sha256(part).hexdigest() for part in parts],
    }
    uploaded(node, parts={"output/deep/large": index, "ranks/0/output.pkl": index})
    for number, part in enumerate(parts):
        leave(node / "parts/0", str(number))
        (node / "parts/0" / str(number)).write_bytes(part)
    bring_earlier_output(str(tmp_path / "2-bbbbbbbb/back"), str(tmp_path / "target"))
    assert brought(tmp_path / "target") == {"deep/large": "abcde"}
    (node / "parts/0/1").write_bytes(b"dx")
    with pytest.raises(OSError, match="is not what the node wrote there"):
        bring_earlier_output(str(tmp_path / "2-bbbbbbbb/back"), str(tmp_path / "again"))


def test_the_first_launch_of_a_run_or_of_a_job_finds_nothing(tmp_path: Path) -> None:
    for launch in ("1-aaaaaaaa", "0123456789abcdef"):
        bring_earlier_output(str(tmp_path / launch / "back"), str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def test_a_start_that_failed_is_not_what_a_run_that_succeeded_has_left(tmp_path: Path) -> None:
    back = tmp_path / "back"
    for start, state in enumerate(("lost", "succeeded")):
        uploaded(back / str(start) / "node_0", "w")
        (back / str(start) / "node_0" / "outcome.json").write_text(json.dumps({"state": state}))
        uploaded(back / str(start) / "node_1", "w")
        assert absent_nodes(str(back), 2) == ([] if state == "succeeded" else [0, 1])
    assert absent_nodes(str(back), 3) == [2]
