"""What the agent does by itself when its process may open nothing more."""

import json
import subprocess
import sys
from pathlib import Path

LIMIT = """
import os, resource, sys
def open_nothing_more():
    top = os.dup(0)
    os.close(top)
    resource.setrlimit(resource.RLIMIT_NOFILE, (top, top))
"""


def run(source: str, *arguments: object) -> str:
    argv = [sys.executable, "-c", LIMIT + source, *map(str, arguments)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def test_the_outcome_is_written(tmp_path: Path) -> None:
    source = (
        "from sgpu_decl.agent.attempt.attempt_record import AttemptRecord\n"
        "record = AttemptRecord(sys.argv[1], 1, 'starting')\n"
        "open_nothing_more()\n"
        "record.state('running')\n"
        "record.flush()\n"
        "record.conclude(state='failed')\n"
    )
    run(source, tmp_path)
    assert json.loads((tmp_path / "outcome.json").read_text())["state"] == "failed"
    assert (tmp_path / "events.log").read_text().count("status_not_written") == 1


def test_processes_that_cannot_be_seen_are_not_taken_for_gone() -> None:
    source = (
        "from sgpu_decl.agent.system import processes\n"
        "open_nothing_more()\n"
        "for look in (processes.descendants, processes.start_time, processes.cpu_ticks):\n"
        "    try:\n"
        "        look(os.getpid())\n"
        "    except OSError as error:\n"
        "        print(error.errno)\n"
    )
    assert run(source) == "24\n" * 3
