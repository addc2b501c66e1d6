"""Log files of ranks as lines: merged by time, bounded, without secrets."""

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.agent.system.secrets import Redactor
from sgpu_decl.backends.host.folder_logs import CHUNK, FolderLog
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.rank_output import LogLines

REF = AttemptRef(Address.parse("run.train"), 1)


class Log:
    """Writes a rank's stream as `_air.py` does: bytes, and beside them when they were written."""

    def __init__(self, folder: Path, rank: int, stream: str = "stdout", restart: int = 0) -> None:
        self.path = folder / "ranks" / str(rank) / str(restart) / f"{stream}.log"
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, text: str | bytes, at: int | None = None) -> None:
        data = text.encode() if isinstance(text, str) else text
        if at is not None:
            size = self.path.stat().st_size if self.path.exists() else 0
            with self.path.with_suffix(".idx").open("ab") as index:
                index.write(struct.pack("<QQ", at, size))
        with self.path.open("ab") as log:
            log.write(data)


def read(folder: Path, **options: object) -> list[str]:
    found = [item for item in stream(folder, **options) if item is not None]
    return [f"{item.rank} {line}" for item in found for line in item.lines]


def stream(folder: Path, **options: object) -> Iterator[LogLines | None]:
    """The lines as they come; `None` where nothing is new."""
    given = {
        "ranks": None, "restart": None, "hide": str, "epoch_ns": None, "later_ns": lambda _: 0,
        "ended": lambda: True,
    }  # fmt: skip
    log, over = FolderLog(REF, folder, **{**given, **options}), False  # type: ignore[arg-type]
    while not over:
        found, over = log.read()
        yield from (lines := list(found))
        if not (lines or over):
            yield None


def test_lines_of_python_ranks_come_in_the_order_of_time(tmp_path: Path) -> None:
    one, two, errors = Log(tmp_path, 0), Log(tmp_path, 1), Log(tmp_path, 1, "stderr")
    one.write("a\n", at=10)
    two.write("b\n", at=20)
    errors.write("oops\n", at=25)
    one.write("c\nd\n", at=30)
    two.write("e\n", at=30)
    one.write("f\n")  # within 10 ms of the entry before
    two.write("g", at=50)
    assert read(tmp_path) == ["0 a", "1 b", "1 oops", "0 c", "0 d", "0 f", "1 e", "1 g"]
    assert read(tmp_path, ranks=(1,)) == ["1 b", "1 oops", "1 e", "1 g"]


def test_lines_of_commands_come_rank_by_rank(tmp_path: Path) -> None:
    Log(tmp_path, 1).write("b\n")
    Log(tmp_path, 0).write("a\nc\n")
    assert read(tmp_path) == ["0 a", "0 c", "1 b"]


def test_one_restart_can_be_asked_for(tmp_path: Path) -> None:
    Log(tmp_path, 0).write("first\n", at=1)
    Log(tmp_path, 0, restart=1).write("second\n", at=2)
    assert read(tmp_path) == ["0 first", "0 second"]
    assert read(tmp_path, restart=1) == ["0 second"]


def test_following_merges_what_is_there_and_waits_for_the_rest(tmp_path: Path) -> None:
    one, two = Log(tmp_path, 0), Log(tmp_path, 1)
    over = False
    lines = stream(tmp_path, ended=lambda: over)
    assert next(lines) is None
    two.write("b\nhalf", at=20)
    one.write("a\n", at=10)
    assert [line and line.text for line in (next(lines), next(lines))] == ["a", "b"]
    assert next(lines) is None
    over = True
    two.write(" done\n", at=30)
    assert [line.text for line in lines if line] == ["half done"]


@pytest.mark.parametrize("size", [CHUNK - 1, CHUNK, CHUNK + 1, 3 << 20])
def test_long_lines_and_large_logs_lose_nothing(tmp_path: Path, size: int) -> None:
    Log(tmp_path, 0).write("x" * size + "\nend\n", at=1)
    lines = [line for item in stream(tmp_path) if item for line in item.lines]
    assert "".join(lines) == "x" * size + "end"
    assert lines[-1] == "end"


def test_lines_that_were_written_together_come_as_one_text(tmp_path: Path) -> None:
    one, two = Log(tmp_path, 0), Log(tmp_path, 1)
    for number in range(3):
        one.write(f"a{number}\nb\r\nc\n" * 1_000, at=10 * number + 10)
    two.write("between\n", at=15)
    found = [item for item in stream(tmp_path) if item]
    amounts = [(item.rank, len(item.lines)) for item in found]
    assert amounts == [(0, 3_000), (1, 1), (0, 3_000), (0, 3_000)]
    assert found[0].lines[-3:] == ["a0", "b", "c"]
    assert found[3].lines[:3] == ["a2", "b", "c"]


def test_a_part_that_the_bound_took_is_said_to_be_missing(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    for number in range(2_000):
        log.write(f"line {number:04}\n", at=number + 1)
    with log.path.open("r+b") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate(file.fileno(), 3, ctypes.c_int64(0), ctypes.c_int64(8192)):
            pytest.skip(f"no holes in files here: {os.strerror(ctypes.get_errno())}")
    note, *lines = read(tmp_path)
    assert note == "0 sgpu: 8200 bytes of older output were dropped: the log had grown too long"
    assert lines == [f"0 line {number:04}" for number in range(820, 2_000)]


def test_an_index_that_is_torn_or_missing_costs_only_the_order(tmp_path: Path) -> None:
    one, two = Log(tmp_path, 0), Log(tmp_path, 1)
    two.write("b\n", at=5)
    one.write("a\n", at=10)
    with one.path.with_suffix(".idx").open("ab") as index:
        index.write(b"\0" * 21)
    assert read(tmp_path) == ["1 b", "0 a"]


def test_secret_values_are_hidden_in_every_spelling(tmp_path: Path) -> None:
    hide = Redactor(["p&ss/w0rd", "abc", "-----BEGIN-----\nMIIB0123\n-----END-----"])
    Log(tmp_path, 0).write("is p&ss/w0rd, p%26ss%2Fw0rd, cCZzcy93MHJk=; MIIB0123; abc\n")
    assert read(tmp_path, hide=hide) == ["0 is ***, ***, ***=; ***; abc"]
