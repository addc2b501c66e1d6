"""What is told of ranks that crash, hang, or leave something else than a report."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.cli.test_supervision import RUN
from tests.mounts import small_disk
from tests.support import PATIENCE, until

CRASH = """\
import ctypes, os
def into_native_code():
    ctypes.string_at(0)
if os.environ["RANK"] == "1":
    into_native_code()
"""
HANG = """\
import threading
def wait_for_the_others():
    threading.Event().wait()
wait_for_the_others()
"""


def test_a_native_crash_is_told_with_its_stack_and_the_file_of_it(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", CRASH)

    applied = sgpu("apply", "-y")

    (run,) = sgpu.data("status")["runs"]
    cause = run["first_cause"]
    assert (cause["rank"], cause["class"]) == (1, "signal_self")
    assert "Segmentation fault" in cause["traceback"]
    (stack,) = cause["stacks"]
    assert stack["rank"] == 1
    assert cause["traceback"].splitlines()[0] in Path(stack["file"]).read_text()
    assert "_air" not in cause["traceback"]
    shown = [
        applied.err,
        sgpu.here("show", "train").out,
        sgpu.here("show", "train", "-o", "markdown").out,
    ]
    for text in shown:
        assert "into_native_code" in text
        assert stack["file"] in text


def test_a_hang_is_told_with_the_stacks_of_all_ranks(sgpu: Shell) -> None:
    sgpu.write("run.yaml", f"{RUN}progress_timeout: 0.4s\n")
    sgpu.write("train.py", HANG)

    applied = sgpu("apply", "-y")

    run = sgpu.data("show", "train")
    cause = run["first_cause"]
    assert cause["class"] == "hung"
    assert [item["rank"] for item in cause["stacks"]] == [0, 1]
    together = "ranks 0-1 have the same stacks:"
    assert cause["traceback"].startswith(together)
    assert cause["traceback"].count("in wait_for_the_others") == 1
    for text in (applied.err, sgpu.here("show", "train").out):
        assert together in text
        assert text.count("in wait_for_the_others") == 1
        assert all(item["file"] in text for item in cause["stacks"])


@pytest.mark.parametrize("kind", ["os.mkfifo(path)", "os.symlink('/dev/zero', path)"])
def test_a_report_that_is_no_file_is_not_waited_for(sgpu: Shell, kind: str) -> None:
    sgpu.write("run.yaml", RUN)
    source = f"import os, sys\npath = os.environ['TORCHELASTIC_ERROR_FILE']\n{kind}\nos._exit(7)\n"
    sgpu.write("train.py", source)

    applied = sgpu("apply", "-y", "-o", "json")

    assert applied.code == 5, applied.err
    (run,) = applied.json["data"]["runs"]
    assert (run["state"], run["first_cause"]["class"], run["exit_code"]) == (
        "failed",
        "exit_code",
        7,
    )


def test_a_result_that_is_no_file_is_not_waited_for(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    place = "{os.environ['SGPU_RUN_DIR']}/ranks/{os.environ['RANK']}/output.json"
    sgpu.write("train.py", f'import os\nos.mkfifo(f"{place}")\n')
    assert sgpu("apply", "-y").code == 0

    assert sgpu("results", "train", "-o", "json").json["error"]["code"] == "result_unreadable"


@pytest.mark.parametrize("end", ["", "os._exit(0)"])
def test_output_that_a_full_disk_dropped_is_told_though_the_disk_stays_full(
    sgpu: Shell, end: str
) -> None:
    sgpu.write("run.yaml", RUN.replace("gpus: 2", "gpus: 1"))
    sgpu.write(
        "train.py",
        "import os, subprocess, sys\n"
        "logs = os.path.dirname(os.environ['TORCHELASTIC_ERROR_FILE'])\n"
        f"while not os.path.exists('{sgpu.folder}/mounted'): pass\n"
        "log = os.open(logs + '/disk/log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        "os.dup2(log, 1); os.dup2(log, 2)\n"
        "print('x' * 3_000_000)\nprint('done')\n"
        f"{end}\n",
    )
    with sgpu.start("apply", "-y") as applying:
        logs = sgpu.folder / ".sgpu/default/runs/train/1/ranks/0/0"
        until(logs.is_dir)
        (logs / "disk").mkdir()
        try:
            with small_disk(logs / "disk", 1 << 20):
                sgpu.write("mounted", "")
                applying.communicate(timeout=PATIENCE)
        finally:
            sgpu.write("mounted", "")  # where none could be mounted, the rank ends too

    (run,) = sgpu.data("status")["runs"]
    assert run["state"] == "succeeded"
    dropped = run["ranks"][0]["dropped_bytes"]
    assert 1_900_000 < dropped < 3_000_010
    told = f"{dropped:,} bytes of its output were dropped: the disk was full"
    assert told in sgpu.here("show", "train").out
    assert f"{dropped} bytes of output were dropped" in sgpu.here("logs", "train").out


@pytest.fixture
def small_group(tmp_path: Path) -> Iterator[Path]:
    """A memory cgroup of 48 MiB, v1 or v2."""
    for parent in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        group = Path(parent, f"sgpu-test-{os.getpid()}-{tmp_path.name}")
        try:
            group.mkdir()
        except OSError:
            continue
        limit = group / "memory.limit_in_bytes"
        limit = limit if limit.exists() else group / "memory.max"
        if limit.exists():
            break
        group.rmdir()
    else:
        pytest.skip("this machine lets us make no cgroup with the memory controller")
    limit.write_text(str(48 << 20))
    if (group / "memory.swap.max").exists():
        (group / "memory.swap.max").write_text("0")
    yield group
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return group.rmdir()
        except OSError:  # what was killed in it is not reaped yet
            assert time.monotonic() < deadline


def test_a_rank_that_is_killed_for_memory_is_told_with_limit_and_peak(
    sgpu: Shell, small_group: Path
) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write(
        "train.py",
        "import os\n"
        "if os.environ['RANK'] == '1':\n"
        f"    open('{small_group}/cgroup.procs', 'w').write(str(os.getpid()))\n"
        "    data = bytearray(os.urandom(1 << 20)) * 512\n",
    )

    applied = sgpu("apply", "-y")

    (run,) = sgpu.data("status")["runs"]
    cause = run["first_cause"]
    assert (cause["rank"], cause["class"]) == (1, "oom")
    memory = cause["memory"]
    assert 30 << 20 < memory["peak_bytes"] < 80 << 20  # its libraries are no part of the group
    if os.access("/dev/kmsg", os.R_OK):
        assert (memory["limit_bytes"], memory["group"]) == (48 << 20, f"/{small_group.name}")
        for text in (applied.err, sgpu.here("show", "train").out):
            assert "ran out of memory (limit 50.3 MB, its peak " in text
