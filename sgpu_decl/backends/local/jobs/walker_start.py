"""Starting the walker of a launch, and asking it to stop."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import sgpu_decl
from sgpu_decl.agent.attempt.attempt_files import encode, read_json
from sgpu_decl.agent.system.processes import send_signal
from sgpu_decl.agent.system.secrets import startup_variables
from sgpu_decl.backends.local.jobs.launch_walker import CANCEL, LAUNCH
from sgpu_decl.errors import BackendError, OutcomeUnknown

_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from sgpu_decl.backends.local.jobs.launch_walker import main; main(sys.argv[1:])"
)


def start_walker(job: Path, lock: int, message: Mapping[str, object]) -> None:
    """Start the walker of a launch, and return once it has made the folder of the launch.

    Args:
        job: the folder of the job.
        lock: the descriptor of the lock of the job, which the walker holds too.
        message: see `launch_walker`; this adds the environment of ranks.

    Raises:
        BackendError: there is no launch.
        OutcomeUnknown: there may be one.
        OSError: no process can be started.
    """
    packages = os.path.dirname(os.path.dirname(sgpu_decl.__file__))
    starter = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, packages, os.fspath(job), str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=startup_variables(os.environ),
        start_new_session=True,
        umask=0o077,
        pass_fds=(lock,),
    )
    answer, _ = starter.communicate(encode({**message, "environ": dict(os.environ)}))
    if not answer:
        raise OutcomeUnknown(
            "the process that walks through the tasks died as it began",
            hint="repeat the command: if the job was started, it finds that launch",
        )
    if answer != b"ok":
        raise BackendError(f"the launch cannot be made: {answer.decode('utf-8', 'replace')}")


def ask_to_stop(folder: Path) -> None:
    """Have the walker of a launch stop its tasks, and start no more. Raises OSError."""
    (folder / CANCEL).touch(mode=0o600)
    launch = read_json(os.fspath(folder), LAUNCH)
    if launch is not None:
        send_signal(launch["pid"], launch["start_time"], signal.SIGWINCH)
