"""The commands of Slurm, as the user of this machine gives them: https://slurm.schedmd.com/"""

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from sgpu_decl.backends.slurm.cluster_state import ACCOUNTED, JOB_FORMAT, SlurmJob, parse_jobs
from sgpu_decl.errors import BackendError

SILENT = "slurm_silent"

_PATIENCE = 60.0  # seconds; `MessageTimeout` of Slurm is 10 by default, and it tries again
_AWAY = 10.0  # seconds for which a controller that did not answer is not asked again
_FRESH = 3.0  # seconds for which a list of jobs is used
# Variables that are options of these commands, or say something of a job that this process is in.
_OPTIONS = ("SLURM_", "SLURMD_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SINFO_", "SCONTROL_", "SACCT_")
_KEPT = ("SLURM_CONF",)
_SQUEUE = ("squeue", "--noheader", "--states=all", "--array", f"--format={JOB_FORMAT}")
_SACCT = ("sacct", "--allocations", "--noheader", "--parsable2", f"--format={ACCOUNTED}")
_SHOWN = 400  # characters of what a command said


class SlurmCommands:
    """Calls may come from several threads."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[SlurmJob, ...]] = {}
        self._asked: dict[str, float] = {}
        self._lock = threading.Lock()
        self._silent: tuple[float, BackendError] | None = None

    def ask(self, *words: str) -> str:
        """What a command says.

        Raises:
            BackendError: it refuses; or, `retryable`, the controller does not answer; or there is
                no Slurm here.
        """
        if self._silent is not None and time.monotonic() - self._silent[0] < _AWAY:
            raise self._silent[1]
        try:
            done = _run(words)
        except FileNotFoundError:
            raise BackendError(
                f"there is no Slurm here: `{words[0]}` is not on the PATH",
                hint="give this command on a login node of the cluster",
                code="no_slurm",
            ) from None
        except subprocess.TimeoutExpired:
            raise self._away(f"`{words[0]}` did not end in {_PATIENCE:g} s") from None
        if done.returncode == 0:
            return done.stdout
        said = _words(done.stderr or done.stdout) or f"it ended with {done.returncode}"
        if not _answers():
            raise self._away(said)
        raise BackendError(
            f"`{words[0]}` refuses it: {said}",
            hint="see `partition`, `account`, `qos`, `constraint` and `options` of `backend`",
            code="slurm_refused",
        )

    def job(self, number: str) -> Sequence[SlurmJob]:
        """The job of that id, if Slurm knows it. Raises BackendError: there is no answer."""
        try:
            return parse_jobs(self.ask(*_SQUEUE, f"--jobs={number}"))
        except BackendError as error:
            if error.retryable:
                raise
            return ()

    def accounted(self, number: str) -> Sequence[SlurmJob]:
        """The job of that id as accounting has it, which does not forget it; empty where nobody
        keeps accounts."""
        with suppress(BackendError):
            return parse_jobs(self.ask(*_SACCT, f"--jobs={number}"))
        return ()

    def jobs_named(self, names: Sequence[str]) -> Sequence[SlurmJob]:
        """The jobs of these names that Slurm knows now. Raises BackendError."""
        return parse_jobs(self.ask(*_SQUEUE, f"--name={','.join(names)}"))

    def _away(self, why: str) -> BackendError:
        error = BackendError(
            f"Slurm does not answer: {why}",
            hint="see `scontrol ping`; where it cannot authenticate, `munge` does not run on this "
            "machine; jobs go on without it: try again",
            code=SILENT,
        )
        error.retryable = True
        self._silent = time.monotonic(), error
        return error

    def jobs(self, name: str, *, fresh: bool = False) -> Sequence[SlurmJob]:
        """The jobs of that name that Slurm knows: also those that ended not long ago
        (`MinJobAge`, https://slurm.schedmd.com/slurm.conf.html). All names that were asked for
        lately are asked for at once. Evidence: E3. Raises BackendError."""
        with self._lock:
            now = time.monotonic()
            if fresh or not self._jobs.get(name) or now - self._asked[name] > _FRESH:
                names = {name, *(one for one, at in self._asked.items() if now - at < 10 * _FRESH)}
                found = self.jobs_named(sorted(names))
                for one in names:
                    self._asked[one] = now
                    self._jobs[one] = tuple(job for job in found if job.name == one)
            return self._jobs[name]


def _run(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    environ = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not name.startswith(_OPTIONS)
    }
    return subprocess.run(
        words, env={**environ, "SLURM_TIME_FORMAT": "%s"}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, errors="replace", timeout=_PATIENCE, check=False,
    )  # fmt: skip


def _answers() -> bool:
    """Whether a controller answers: https://slurm.schedmd.com/scontrol.html#OPT_ping"""
    try:
        return _run(["scontrol", "ping"]).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _words(text: str) -> str:
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    said = lines[-1].partition("error: ")[2] or lines[-1] if lines else ""
    return "".join(filter(str.isprintable, said))[:_SHOWN]
