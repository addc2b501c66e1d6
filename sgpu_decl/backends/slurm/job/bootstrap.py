"""What a job and each of its nodes begin with: `python -I -S -c TEXT job|node LAUNCH ...`. It looks
for the archive of the node agent, and goes on with a program of this package there.

The text is a part of the script that `sbatch` is given, and says nothing of a launch: that is an
argument, `launch_files.JobLaunch` in JSON. The Python of an image may be too old: it can read this.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.backends.slurm.job.launch_files import JobLaunch

PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before each look at what others have, or say, late."""

FOLDER = "sgpu-job-"
"""What the name of a program's folder on its node begins with."""


def main(role: str, launch: "JobLaunch", place: "list[str]") -> int:
    if role == "job":
        if not os.path.isdir(launch["folder"]):
            sys.stderr.write(f"sgpu: nothing to do: `{launch['folder']}` is not there (any more)\n")
            return 0
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))  # see `node_step.StopSignal`
    run = tempfile.mkdtemp(prefix=FOLDER)
    try:
        if sys.version_info < (3, 10):  # noqa: UP036
            raise OSError(f"its Python, {sys.executable}, is not 3.10 or newer")
        _add_agent(launch, os.path.join(run, "agent.zip"))
        if role == "job":
            from sgpu_decl.backends.slurm.job.job_program import run_job

            return run_job(launch, run)
        from sgpu_decl.backends.slurm.job.node_start import become_agent

        become_agent(launch, run, *place)
    except OSError as error:
        if role == "node":
            _refuse(launch["folder"], error)
        raise
    finally:
        shutil.rmtree(run, ignore_errors=True)


def _add_agent(launch: "JobLaunch", archive: str) -> None:
    """Copy the archive of the agent to this node, and let this program import from it."""
    for pause in PAUSES:
        time.sleep(pause)
        try:
            with open(f"{launch['objects']}/agent/{launch['agent']}.zip", "rb") as file:
                data = file.read()
        except OSError:
            continue
        if hashlib.sha256(data).hexdigest() == launch["agent"]:
            with open(archive, "wb") as file:
                file.write(data)
            for name in ("sgpu_decl", "sgpu_decl.agent"):
                package = sys.modules.setdefault(name, type(sys)(name))
                package.__path__ = [archive]
            return
    raise OSError(f"the node agent in `{launch['objects']}` is missing or damaged")


def _refuse(folder: str, error: OSError) -> None:
    """Say that this node cannot begin: the others would wait for it."""
    number, host = os.environ["SLURM_NODEID"], os.environ.get("SLURMD_NODENAME", "?")
    draft = f"{folder}/logs/.refused-{number}"
    with open(draft, "w") as file:
        json.dump({"why": f"node {number} ({host}): {error}"}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, f"{folder}/logs/refused.json")


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]))
