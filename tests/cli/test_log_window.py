"""`logs --tail` and `--since`: the newest lines."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu_decl.agent.attempt.attempt_status import monotonic_epoch_ns
from sgpu_decl.cli.logs import newest_lines, written_since
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.rank_output import LogLines
from tests.cli.conftest import Shell
from tests.support import some

REF = AttemptRef(Address.run("train"), 1)


def lines(text: str, time_ns: int | None = None) -> LogLines:
    return LogLines(ref=REF, rank=0, stream="stdout", text=text, time_ns=time_ns)


@pytest.mark.parametrize(
    ("tail", "left"),
    [
        (None, ["a\nb\nc", "d", "e\nf"]),
        (0, []),
        (1, ["f"]),
        (2, ["e\nf"]),
        (3, ["d", "e\nf"]),
        (4, ["c", "d", "e\nf"]),
        (9, ["a\nb\nc", "d", "e\nf"]),
    ],
)
def test_the_last_lines_are_counted_one_by_one(tail: int | None, left: list[str]) -> None:
    items = [lines("a\nb\nc"), lines("d"), lines("e\nf")]
    assert [item.text for item in newest_lines(items, tail)] == left


def test_the_last_lines_of_each_run_are_shown() -> None:
    other = AttemptRef(Address.run("eval"), 1)
    items = [lines("a\nb"), lines("c"), replace(lines("d\ne\nf"), ref=other)]
    assert [item.text for item in newest_lines(items, 2)] == ["b", "c", "e\nf"]


def test_what_comes_while_following_is_not_counted() -> None:
    items = [lines("a\nb"), None, lines("c"), object(), lines("d\ne"), None, lines("f")]
    assert [item.text for item in newest_lines(items, 2)] == ["b", "c", "d\ne", "f"]


def test_lines_without_a_time_stay_and_are_named() -> None:
    untimed: set[str] = set()
    items = [lines("old", 5), lines("new", 9), None, lines("unknown")]
    assert list(written_since(items, 7, untimed)) == items[1:]
    assert untimed == {"train#1"}
    assert list(written_since(items, None, set())) == items


def test_lines_of_python_ranks_know_their_time(sgpu: Shell) -> None:
    sgpu.write("train.py", "print('hello')\nprint('again')\n")
    sgpu.write(
        "run.yaml",
        "name: a\ngpus: 1\ntype: CPU\nentrypoint: train.py\nmlflow: {enabled: false}\n",
    )
    sgpu.done("apply", "-y")
    assert sgpu.here("logs", "--since", "1h").out == "hello\nagain\n"
    assert sgpu.here("logs", "--tail", "1").out == "again\n"
    assert sgpu.here("logs", "-f", "--tail", "1", "--since", "1h").out == "again\n"
    recent = sgpu.here("logs", "--since", "0s")
    assert (recent.code, recent.out) == (0, "")
    assert [line["text"] for line in sgpu.data("logs", "--tail", "1")["lines"]] == ["again"]


def test_lines_of_commands_have_no_time(sgpu: Shell) -> None:
    sgpu.write(
        "run.yaml", "name: a\ngpus: 1\ntype: CPU\ncommand: echo hi\nmlflow: {enabled: false}\n"
    )
    sgpu.done("apply", "-y")
    shown = sgpu.here("logs", "a", "--since", "1h")
    assert shown.out == "hi\n"
    assert shown.err == "note: `a#1` wrote lines without a time: `--since` does not filter them\n"


def test_the_clock_of_another_boot_tells_no_time(tmp_path: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (tmp_path / "identity.json").write_text(f'{{"boot": "{boot}"}}')
    epoch = some(monotonic_epoch_ns(os.fspath(tmp_path)))
    assert abs(epoch + time.monotonic_ns() - time.time_ns()) < 60 * 10**9
    (tmp_path / "identity.json").write_text('{"boot": "another"}')
    assert monotonic_epoch_ns(tmp_path) is None
