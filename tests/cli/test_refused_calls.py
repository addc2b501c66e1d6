"""What a user meets on a machine whose kernel refuses the system calls of supervisors."""

import errno
import subprocess
from typing import Any

import pytest

from sgpu_decl.agent.system.processes import start_time
from sgpu_decl.testing.refused_calls import REFUSABLE, refuse
from tests.cli.conftest import Shell
from tests.cli.test_supervision import BLOCK, RUN
from tests.support import PATIENCE, until

ORPHAN = """\
import os, subprocess
child = subprocess.Popen(["/bin/sleep", "600"], env={})
open(os.environ["SGPU_PROJECT_DIR"] + "/child" + os.environ["RANK"], "w").write(str(child.pid))
"""


@pytest.fixture(params=[errno.ENOSYS, errno.EPERM], ids=errno.errorcode.get)
def sandbox(request: Any, sgpu: Shell) -> Any:
    """Runs a command under the filter; returns its exit code and all that it said."""

    def run(*arguments: str) -> tuple[int, str]:
        with sgpu.start(
            *arguments,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: refuse(dict.fromkeys(REFUSABLE, request.param)),
        ) as process:
            out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out + err

    return run


def test_a_run_succeeds_and_leaves_nothing_behind(sgpu: Shell, sandbox: Any) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", ORPHAN)
    code, said = sandbox("apply", "-y", "run.yaml")
    assert code == 0, said
    assert "this machine lacks pidfd_open (E" in said
    assert "seccomp profile" in said
    children = [int(path.read_text()) for path in sgpu.folder.glob("child?")]
    assert len(children) == 2
    until(lambda: not any(map(start_time, children)))


def test_a_run_is_cancelled(sgpu: Shell, sandbox: Any) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", BLOCK)
    code, said = sandbox("apply", "-y", "--detach", "run.yaml")
    assert code == 0, said
    until(lambda: len(list(sgpu.folder.rglob("output/up?"))) == 2)
    assert sandbox("cancel", "train")[0] == 0
    (run,) = sgpu("status", "-o", "json").json["data"]["runs"]
    assert run["state"] == "cancelled"


def test_a_machine_that_gives_all_says_nothing(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", "")
    assert "this machine lacks" not in sgpu.here("plan", "run.yaml").out
