"""Which logs of Ray are kept, and what is shown of them."""

import os
from pathlib import Path

import pytest

from sgpu_decl.agent import ray_logs
from sgpu_decl.agent.ray_logs import keep_logs, last_lines


def test_the_newest_logs_are_kept_as_far_as_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_logs, "_MOST_BYTES", 10)
    logs = tmp_path / "logs"
    (logs / "below").mkdir(parents=True)
    names = ("old.out", "below/middle.out", "new.out", "large.out")
    for age, (name, text) in enumerate(zip(names, ("aaaa", "bbbb", "cccc", "d" * 11), strict=True)):
        (logs / name).write_text(text)
        os.utime(logs / name, (age, age))
    (logs / "link.out").symlink_to("new.out")
    (logs / "empty.out").touch()
    kept = tmp_path / "kept"
    assert keep_logs(str(logs), str(kept), lambda text: text.replace("c", "*")) == 2
    found = {str(path.relative_to(kept)): path.read_text() for path in kept.rglob("*.out")}
    assert found == {"below/middle.out": "bbbb", "new.out": "****"}


def test_the_last_lines_are_those_of_the_last_file(tmp_path: Path) -> None:
    out, err = tmp_path / "raylet.out", tmp_path / "raylet.err"
    out.write_text("".join(f"out {number}\n" for number in range(30)))
    err.write_text("\nerr\n[state-dump] numbers\n")
    text = last_lines(str(out), str(err))
    assert text is not None
    assert text.splitlines() == [*(f"out {number}" for number in range(11, 30)), "err"]
    assert last_lines(str(tmp_path / "none")) is None
