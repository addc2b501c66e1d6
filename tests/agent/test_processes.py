"""Which processes belong to an attempt, whatever they are doing when they are looked at."""

import subprocess
from pathlib import Path

from sgpu_decl.agent.system import processes

LOOKS = 300


def test_a_process_that_becomes_another_program_is_found_at_each_look(tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.write_text('#!/bin/sh\nexec "$0"\n')
    again.chmod(0o700)
    with subprocess.Popen([again], env={"SGPU_COOKIE": "of-this-test"}) as process:
        try:
            found = [processes.carriers("of-this-test") for _ in range(LOOKS)]
        finally:
            process.kill()

    assert {tuple(pid for pid, _ in members) for members in found} == {(process.pid,)}
