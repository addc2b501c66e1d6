"""The node agent as a child process, from its start to the outcome of the run."""

from __future__ import annotations

import os
import sys

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.attempt_record import lost_outcome
from sgpu_decl.agent.attempt.attempt_status import read_attempt
from sgpu_decl.agent.system.kernel_features import PARENT_DEATH_SIGNAL, available
from sgpu_decl.agent.system.locks import wait_until_free
from sgpu_decl.agent.system.processes import until_one_ends
from sgpu_decl.agent.system.secrets import split_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sgpu_decl.agent.node.log_forwarding import Echo
    from sgpu_decl.agent.node.monitor_copy import MonitorCopy
    from sgpu_decl.agent.node.stop_request import StopRequest
    from sgpu_decl.agent.several_nodes.node_group import Node

ARCHIVE = "agent.zip"
LOG = "agent.log"
_SOONEST, _LATEST = 0.02, 0.32  # seconds


def attend(
    run_dir: str,
    node: Node,
    stopping: StopRequest,
    echo: Echo,
    secrets: Mapping[str, str],
    told: MonitorCopy | None = None,
) -> None:
    """Run the ranks of this node to the end; after that there is an outcome in any case.

    Args:
        secrets: the variables whose values `/proc` must not show of the agent.
        told: what is brought to the readers meanwhile.
    """
    folder = node.records(run_dir)
    os.makedirs(folder, exist_ok=True)
    if stopping.asked:
        with open(os.path.join(folder, attempt_files.CANCEL), "wb"):
            pass  # the agent looks for it first
    log = os.open(
        os.path.join(run_dir, LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )
    try:
        environment, rest = split_secrets(os.environ, secrets)
        try:
            agent = stopping.start(
                _command(run_dir, node),
                output=log, environment=environment, keep=(rest,), holds=True,
            )  # fmt: skip
        finally:
            os.close(rest)
    except OSError as error:
        conclude(folder, "launch_failed", f"the node agent cannot be started: {error.strerror}")
        return
    finally:
        os.close(log)
    _follow(agent.pid, echo, told)
    agent.wait()
    stopping.ended()
    if not os.path.exists(os.path.join(folder, attempt_files.OUTCOME)):
        # The guardian was killed: the supervisor goes on, or is gone too.
        wait_until_free(os.path.join(folder, attempt_files.SUPERVISOR_LOCK))
        if read_attempt(folder)["state"] == "staging":
            conclude(folder, "launch_failed", f"the node agent ended with {agent.returncode}")
        else:
            conclude(folder, "supervisor_lost", "the node agent was killed or crashed")


def conclude(folder: str, failure: str, summary: str) -> None:
    """Write the outcome of a lost run, unless there is one.

    Raises:
        OSError: the disk is full.
    """
    status = attempt_files.read_json(folder, attempt_files.STATUS)
    outcome = lost_outcome(status, failure, summary, "node")
    attempt_files.write_once(folder, attempt_files.OUTCOME, attempt_files.encode(outcome))


def _follow(pid: int, echo: Echo, told: MonitorCopy | None) -> None:
    """Echo until the process has ended, less often while there is nothing new."""
    pause = _SOONEST
    while not until_one_ends([pid], pause):
        if told is not None:
            told.turn()
        pause = 0.0 if echo.turn() else min(2 * pause or _SOONEST, _LATEST)


def _command(run_dir: str, node: Node) -> list[str]:
    argv = [sys.executable, "-I", "-S", os.path.join(run_dir, ARCHIVE)]
    argv += ["--spec", os.path.join(run_dir, attempt_files.SPEC), "--restart", str(node.restart)]
    argv += ["--node-rank", str(node.number), "--nodes", str(node.count)]
    if node.count > 1:
        argv += ["--master-addr", node.address, "--master-port", str(node.port)]
    if node.unprepared is not None:
        argv += ["--unprepared", *node.unprepared]
    if not available(PARENT_DEATH_SIGNAL):
        argv += ["--parent", str(os.getpid())]
    return argv
