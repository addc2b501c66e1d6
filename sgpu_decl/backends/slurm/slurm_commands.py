"""The commands of Slurm, as its user gives them on a login node: https://slurm.schedmd.com/"""

import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from sgpu_decl.agent.system.plain_command import run_command
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.backends.slurm.cluster_state import ACCOUNTED, JOB_FORMAT, SlurmJob, parse_jobs
from sgpu_decl.errors import BackendError

SILENT = "slurm_silent"

_PATIENCE = 60.0  # seconds; `MessageTimeout` of Slurm is 10 by default, and it tries again
_TEST_PATIENCE = 10.0
_AWAY = 10.0  # seconds for which a controller that did not answer is not asked again
_FRESH = 3.0  # seconds for which a list of jobs is used
# Variables that are options of these commands, or say something of a job that this process is in.
_OPTIONS = ("SLURM_", "SLURMD_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SINFO_", "SCONTROL_", "SACCT_")
_HOW: dict[str, Any] = {
    "drop": _OPTIONS, "keep": ("SLURM_CONF",), "add": {"SLURM_TIME_FORMAT": "%s"},
}  # fmt: skip
_SQUEUE = ("squeue", "--noheader", "--states=all", "--array", f"--format={JOB_FORMAT}")
_SACCT = ("sacct", "--allocations", "--noheader", "--parsable2", f"--format={ACCOUNTED}")
# Such as `AssocMaxSubmitJobLimit`: https://slurm.schedmd.com/job_reason_codes.html
_LIMIT = re.compile(r"\b(?:Assoc|QOS)\w*SubmitJob\w*")
_SHOWN = 400  # characters of what a command said
_AT_ONCE = 500  # jobs of one command: Linux takes 128 KiB as an argument
# `ESLURM_ALREADY_DONE`, 2021, as an exit status. scancel 22.05 also ends so after it has signalled
# a task of an array of which others wait: https://github.com/SchedMD/slurm, slurm/slurm_errno.h
_DONE = 2021 % 256


RunCommand = Callable[[Sequence[str], float], tuple[int, str, str]]
"""Runs a command for some seconds at most; returns its exit code, and what it wrote. Raises
FileNotFoundError, subprocess.TimeoutExpired."""

run_here: RunCommand = partial(run_command, **_HOW)


def run_on(box: Box) -> RunCommand:
    """Commands on a box. They raise BackendError, too: there is no way to it."""

    def run(words: Sequence[str], patience: float) -> tuple[int, str, str]:
        message = {"words": words, "patience": patience, "how": _HOW}
        once = words[0] == "sbatch"  # the others may be given twice
        answer, _ = box.send("command", message, patience=patience + _PATIENCE, once=once)
        if answer.get("failed") == "missing":
            raise FileNotFoundError
        if answer.get("failed") == "late":
            raise subprocess.TimeoutExpired(words, patience)
        code, out, err = answer["ended"]
        return code, out, err

    return run


class SlurmCommands:
    """Calls may come from several threads.

    Args:
        where: where they are run, in words: "here".
    """

    def __init__(self, run: RunCommand = run_here, where: str = "here") -> None:
        self._run = run
        self._where = where
        self._jobs: dict[str, tuple[SlurmJob, ...]] = {}
        self._asked: dict[str, float] = {}
        self._lock = threading.Lock()
        self._silent: tuple[float, BackendError] | None = None
        self._accounts = True  # until sacct says that nobody keeps them

    def ask(self, *words: str) -> str:
        """What a command says.

        Raises:
            BackendError: it refuses; or, `retryable`, the controller or the machine does not
                answer; or there is no Slurm.
        """
        if self._silent is not None and time.monotonic() - self._silent[0] < _AWAY:
            raise self._silent[1]
        try:
            code, out, err = self._run(words, _PATIENCE)
        except FileNotFoundError:
            raise BackendError(
                f"there is no Slurm {self._where}: `{words[0]}` is not on the PATH",
                hint="give this command on a login node of the cluster, or name one with "
                "`backend.login`",
                code="no_slurm",
            ) from None
        except subprocess.TimeoutExpired:
            raise self._away(f"`{words[0]}` did not end in {_PATIENCE:g} s") from None
        if code == 0 or (words[0] == "scancel" and code == _DONE):
            return out
        said = _words(err or out) or f"it ended with {code}"
        if not self._answers():
            raise self._away(said)
        if (limit := _LIMIT.search(err)) is not None:
            raise BackendError(
                f"`{words[0]}` refuses it by a limit on jobs that wait and run: {limit[0]}",
                hint="each cell of a matrix is a job, whatever `max_parallel` says: apply again "
                "when others have ended, select fewer cells, or name another `qos` or `account`",
                code="slurm_refused",
            )
        raise BackendError(
            f"`{words[0]}` refuses it: {said}",
            hint="see `partition`, `account`, `qos`, `constraint` and `options` of `backend`",
            code="slurm_refused",
        )

    def test_only(self, *options: str) -> str:
        """What sbatch says, on stderr, of a job with these options, which it does not submit.
        Raises BackendError: it refuses, or takes long to say it, as with a long queue."""
        with suppress(FileNotFoundError, subprocess.TimeoutExpired):
            code, _, err = self._run(("sbatch", *options, "--wrap=true"), _TEST_PATIENCE)
            if code == 0:
                return err
        raise BackendError("Slurm does not tell when it would start a job")

    def job(self, number: str) -> Sequence[SlurmJob]:
        """The job of that id, if Slurm knows it. Raises BackendError: there is no answer."""
        return self._of_one(*_SQUEUE, f"--jobs={number}") or ()

    def accounted(self, number: str) -> Sequence[SlurmJob]:
        """The job of that id as accounting has it, which does not forget it; empty where nobody
        keeps accounts, which is asked once. Raises BackendError: there is no answer."""
        jobs = self._of_one(*_SACCT, f"--jobs={number}") if self._accounts else ()
        self._accounts = jobs is not None
        return jobs or ()

    def _of_one(self, *words: str) -> Sequence[SlurmJob] | None:
        """The jobs that a command lists; None if it refuses to."""
        try:
            return parse_jobs(self.ask(*words))
        except BackendError as error:
            if error.retryable:
                raise
            return None

    def jobs_named(self, names: Sequence[str]) -> Sequence[SlurmJob]:
        """The jobs of these names that Slurm knows now. Raises BackendError."""
        parts = [names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE)]
        return [
            job
            for part in parts
            for job in parse_jobs(self.ask(*_SQUEUE, f"--name={','.join(part)}"))
        ]

    def stop(self, jobs: Sequence[SlurmJob], *options: str) -> None:
        """Have Slurm end or signal jobs, many by one command: https://slurm.schedmd.com/scancel.html
        Raises BackendError: it may have done so with some of them."""
        for at in range(0, len(jobs), _AT_ONCE):
            self.ask("scancel", *options, *(job.id for job in jobs[at : at + _AT_ONCE]))

    def _away(self, why: str) -> BackendError:
        error = BackendError(
            f"Slurm does not answer: {why}",
            hint="see `scontrol ping`; where it cannot authenticate, `munge` does not run "
            f"{self._where}; jobs go on without it: try again",
            code=SILENT,
        )
        error.retryable = True
        self._silent = time.monotonic(), error
        return error

    def jobs(self, name: str) -> Sequence[SlurmJob]:
        """The jobs of that name that Slurm knows: also those that ended not long ago
        (`MinJobAge`, https://slurm.schedmd.com/slurm.conf.html). All names that were asked for
        lately are asked for at once. Evidence: E3. Raises BackendError."""
        with self._lock:
            now = time.monotonic()
            if not self._jobs.get(name) or now - self._asked[name] > _FRESH:
                names = {name, *(one for one, at in self._asked.items() if now - at < 10 * _FRESH)}
                found = self.jobs_named(sorted(names))
                for one in names:
                    self._asked[one] = now
                    self._jobs[one] = tuple(job for job in found if job.name == one)
            return self._jobs[name]

    def _answers(self) -> bool:
        """Whether a controller answers: https://slurm.schedmd.com/scontrol.html#OPT_ping"""
        try:
            return self._run(["scontrol", "ping"], _PATIENCE)[0] == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


def _words(text: str) -> str:
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    said = lines[-1].partition("error: ")[2] or lines[-1] if lines else ""
    return "".join(filter(str.isprintable, said))[:_SHOWN]
