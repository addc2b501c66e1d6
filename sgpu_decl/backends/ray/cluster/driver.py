"""The driver of a launch: it gets nodes from Ray, starts a node program on each, watches them, and
says how the run ended.

`launch.json` has the launch: its `token`; `launch` and `back`, its folders; `start`, for
`NodeActor.run`; `placement`, `retry`, `grace` and `startup_timeout`; `upstreams`, for
`await_upstreams`; and whether it has `secrets`. These, and the credentials of a tracking server,
are one value of the key-value store. The driver takes it as soon as it has joined the cluster, so
that none is left there, however the launch ends.

If there is no storage, `sent` is what `SentFiles` needs, and paths are relative to the head's
folder. The driver then writes the launch folder, which the package has as `files`, and last the
file that `marker` of `sent` names. The exit code is the run's.
"""

from __future__ import annotations

import json
import os
import signal
import time
import traceback

import ray

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.attempt_record import cancelled_outcome, lost_outcome
from sgpu_decl.agent.node.earlier_output import UpstreamFailed
from sgpu_decl.agent.node.platform_attempts import PlatformAttempts
from sgpu_decl.agent.notices.program import webhook_notice
from sgpu_decl.agent.retry_rule import BLAME, CANCELLED, pause_before, why_ended
from sgpu_decl.agent.system.secrets import Redactor
from sgpu_decl.backends.ray.cluster.bundle_counts import HEAD_RESOURCE
from sgpu_decl.backends.ray.cluster.driver_status import DriverStatus
from sgpu_decl.backends.ray.cluster.head_folder import head_folder, write_launch
from sgpu_decl.backends.ray.cluster.head_names import cancel_name, values_name
from sgpu_decl.backends.ray.cluster.job_verdict import NO_STORAGE, is_final
from sgpu_decl.backends.ray.cluster.log_copies import LogCopy
from sgpu_decl.backends.ray.cluster.node_actors import LostNode, NodeGroup, Nodes
from sgpu_decl.backends.ray.cluster.own_job import empty_folder, find_job, join_cluster, pop_value
from sgpu_decl.backends.ray.cluster.own_node import OwnNode
from sgpu_decl.backends.ray.cluster.placement_group import NoRoom, place
from sgpu_decl.backends.ray.cluster.sent_files import SentFiles
from sgpu_decl.backends.ray.cluster.upstream_wait import await_upstreams, copy_outputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_POLL = 0.5  # seconds between two looks for a request to cancel
_BUSY_POLL = 0.1  # the same while ranks start, or write what this process takes
_FROM_AGENT = ("state", "ranks", "restart", "mlflow", "ray", "waiting_for")
_LATE = 60.0  # seconds that nodes may need, beyond the grace, once the run is to end
_STOPPED_BY_RAY = 2.0  # seconds of the 3 that Ray gives a job that is stopped
_STOPPED_DISCARD, _DISCARD = 0.5, 30.0  # seconds for nodes to delete what they do not need
_STORE_ANSWERS = 30.0  # seconds until the key-value store must answer
_VISIBLE = 30.0  # seconds until a file of a node is seen here


def main(folder: str) -> int:
    """Run the launch whose package lies in `folder`."""
    with open(os.path.join(folder, "launch.json"), encoding="utf-8") as file:
        launch = json.load(file)
    with open(os.path.join(folder, "agent.zip"), "rb") as file:
        agent = file.read()
    files = _read_all(os.path.join(folder, "files"))
    empty_folder(folder)
    try:
        join_cluster()
    except Exception as error:  # noqa: BLE001  any error ends the run, and is reported
        return _end_unjoined(launch, error)
    try:
        variables = _take_values(launch)
        reason = None
        if launch["sent"] is None:
            reason = _unusable(launch["launch"])
        else:
            try:
                launch = _written(launch, files)
            except Exception as error:  # noqa: BLE001  as above
                reason = _unwritten(launch, error)
        if reason is not None:
            attempt_files.say(reason)
            return NO_STORAGE
        return _Driver(launch, agent, variables).run()
    finally:
        pop_value(cancel_name(launch["token"]))  # one that came too late, or twice


class _Driver:
    """`variables` are those of ranks that come from secrets; None if these are gone."""

    def __init__(
        self, launch: dict[str, Any], agent: bytes, variables: dict[str, str] | None
    ) -> None:
        self._launch = launch
        self._agent = agent
        self._variables = variables
        self._status = DriverStatus(launch["launch"])
        self._back = PlatformAttempts(launch["back"])
        self._copy = LogCopy()
        self._sent = SentFiles(launch, self._copy) if launch["sent"] is not None else None
        self._cancelled = False
        self._stopped_at: float | None = None  # by Ray
        self._from_node: dict[str, Any] | None = None  # the last outcome of node 0

    def run(self) -> int:
        self._status.write()
        self._status.keep_alive()
        try:
            signal.signal(signal.SIGTERM, self._on_sigterm)
            outcome = self._run()
        except Exception as error:  # noqa: BLE001  any error ends the run, and is reported
            traceback.print_exc()
            outcome = _driver_failed(error)
        self._status.end(outcome)
        self._tell(outcome)
        return int(outcome["exit_code"])

    def _tell(self, outcome: dict[str, Any]) -> None:
        """Tell the webhook of an end that node 0 does not tell (`agent.node.program`): without
        nodes, after it was lost, or by a stop. What came of it is in the log of the job alone:
        whoever waits for the end has seen it by then."""
        node = self._from_node
        why = node and why_ended(node, self._launch["retry"], other_nodes=True)
        if why and why != CANCELLED:
            return
        variables = dict(self._variables or {})
        spec = attempt_files.read_json(self._launch["launch"], attempt_files.SPEC) or {}
        send = webhook_notice(spec, outcome, variables, Redactor(variables.values()))
        if send is None:
            return
        _, _, summary = send()
        attempt_files.say(f"on_finish.webhook: {summary}")

    def _run(self) -> dict[str, Any]:
        if self._variables is None:
            return _failed("staging_failed", "the values of the secrets are gone: Ray keeps "
                           "them for ten minutes, and the driver started later")  # fmt: skip
        if self._sent is None:
            return self._attempts(self._variables)
        self._await_gc(self._sent)
        if self._stop_requested():
            return cancelled_outcome(None, "stopped before it had nodes", "driver")
        missing = self._sent.missing_content()
        if missing is not None:
            return _failed("staging_failed", missing)
        with self._sent.kept_content():
            outcome = self._attempts(self._variables)
        if outcome.get("class") == "staging_failed":
            damaged = self._sent.delete_damaged()
            if damaged is not None:
                attempt_files.say(damaged)
        return outcome

    def _await_gc(self, sent: SentFiles) -> None:
        while sent.gc_goes_on() and not self._stop_requested():
            self._status.write(state="queued", waiting_for="the end of `sgpu gc`")
            time.sleep(_POLL)
        self._status.write(waiting_for=None)

    def _attempts(self, secrets: dict[str, str]) -> dict[str, Any]:
        """Run the ranks, once the runs before have succeeded, as often as `retry` wants; return the
        last outcome."""
        try:
            ready = await_upstreams(
                self._launch["upstreams"], self._status, _Jobs(), stopped=self._stop_requested
            )
            if ready and self._sent is None:
                copy_outputs(self._launch["upstreams"])
        except UpstreamFailed as error:
            return _failed(error.failure, error.summary)
        if not ready:
            return cancelled_outcome(None, "stopped before it had nodes", "driver")
        number = 0
        while True:
            outcome = self._attempt(number, secrets)
            number += 1
            if self._stop_requested():
                return _after_stop(outcome)
            if is_final(outcome, self._launch["retry"], max(number, self._back.look()[1])):
                return outcome
            attempt_files.say(f"starting again on other nodes: {_summary(outcome)}")
            self._pause(pause_before(number, self._launch["retry"]))

    def _attempt(self, number: int, secrets: dict[str, str]) -> dict[str, Any]:
        """Run the ranks once; return the outcome."""
        self._from_node = None
        launch, wanted = self._launch, self._launch["placement"]
        before = self._back.look()[1]
        nodes: Nodes
        if HEAD_RESOURCE in wanted["bundle"]:  # which the job of this driver has
            nodes = OwnNode(self._agent, self._sent)
        else:
            try:
                group = place(
                    wanted, f"{launch['token']}-{number}", self._status,
                    patience=launch["startup_timeout"], stopped=self._stop_requested,
                )  # fmt: skip
            except NoRoom as error:
                return _failed(error.failure, error.summary)
            if group is None:
                return cancelled_outcome(None, "stopped before it had nodes", "driver")
            nodes = NodeGroup(group, self._agent, wanted["bundle"], self._sent)
        try:
            lost = self._watch(nodes, number, secrets)
        finally:
            self._copy.finish()
            nodes.close(_STOPPED_DISCARD if self._stopped_at else _DISCARD)
        if lost is None:
            return cancelled_outcome(None, "stopped before its ranks were started", "driver")
        return self._outcome(before, lost)

    def _watch(self, nodes: Nodes, number: int, secrets: dict[str, str]) -> list[LostNode] | None:
        """Start the node programs, and wait for their end; return the nodes that were lost. None if
        the run was stopped before any started."""
        try:
            nodes.await_actors()
        except LostNode as error:
            return [error]
        logs = os.path.join(self._launch["launch"], self._launch["logs"], str(number))
        os.makedirs(logs, exist_ok=True)
        now = attempt_files.stamp()
        self._status.write(state="starting", nodes=nodes.places, started_at=now, ray=None)
        try:
            for _ in nodes.send_files(logs):
                if self._stop_requested():
                    return None
        except LostNode as error:
            return [error]
        self._copy.begin(nodes.start(self._launch["start"], logs, secrets))
        losses: list[LostNode] = []
        asked = writing = False
        deadline: float | None = None  # once a node is lost, or the run is to end
        while nodes.running:
            starting = self._status.fields["state"] == "starting"
            lost = nodes.wait(_BUSY_POLL if starting or writing else _POLL)
            losses += lost
            self._copy.copy_new_lines()
            if self._sent is not None:
                writing = self._sent.take_lines()
                self._sent.take_monitor()
            if (self._stop_requested() or losses) and not asked:
                asked = True
                nodes.stop()
            if asked and deadline is None:
                deadline = time.monotonic() + float(self._launch["grace"]) + _LATE
            seen = nodes.status()
            if seen is not None and not asked:
                self._status.write(**_status_fields(seen))
            elif asked:
                self._status.write(state="stopping")
            late = deadline is not None and time.monotonic() > deadline
            if (late and not nodes.collecting) or self._out_of_time():
                break
        return losses

    def _outcome(self, before: int, lost: list[LostNode]) -> dict[str, Any]:
        """What the first agent says of this attempt, or else what was seen of its nodes."""
        deadline = time.monotonic() + (0.0 if lost or self._stopped_at else _VISIBLE)
        while True:
            outcome, starts = self._back.look()
            if starts > before and outcome is not None:
                self._from_node = outcome
                if lost and outcome["state"] == "cancelled" and not self._stop_requested():
                    # Its node program was stopped because a node was lost.
                    return _failed(lost[0].failure, lost[0].summary, outcome)
                return outcome
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL)
        status = self._status.fields
        if self._stop_requested():
            return cancelled_outcome(status, "its nodes were stopped", "driver")
        if lost:
            return _failed(lost[0].failure, lost[0].summary, status)
        return _failed("node_lost", "node 0 ended without an outcome", status)

    def _stop_requested(self) -> bool:
        """Whether somebody has asked for the end of the run."""
        if not self._cancelled and pop_value(cancel_name(self._launch["token"])) is not None:
            self._cancelled = True
        return self._cancelled or self._stopped_at is not None

    def _out_of_time(self) -> bool:
        stopped = self._stopped_at
        return stopped is not None and time.monotonic() - stopped > _STOPPED_BY_RAY

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._status.write(state="queued", waiting_for="backoff")
        while time.monotonic() < deadline and not self._stop_requested():
            time.sleep(min(_POLL, max(0.0, deadline - time.monotonic())))

    def _on_sigterm(self, _number: int, _frame: object) -> None:
        self._stopped_at = self._stopped_at or time.monotonic()


class _Jobs:
    """See `upstreams.Jobs`."""

    def find(self, token: str) -> dict[str, Any] | None:
        return find_job(token)

    def node_lives(self, node: str) -> bool:
        return any(one["NodeID"] == node and one["Alive"] for one in ray.nodes())


def _take_values(launch: dict[str, Any]) -> dict[str, str] | None:
    """Take from the key-value store the variables of ranks that the client left there; None if
    secrets are gone. A run without the credentials of its tracking server is not tracked."""
    value = pop_value(values_name(launch["token"]), patience=_STORE_ANSWERS)
    given = json.loads(value or "{}")
    if launch["secrets"] and "secrets" not in given:
        return None
    return {**given.get("credentials", {}), **given.get("secrets", {})}


def _written(launch: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
    """Write the launch folder on the head node; return the launch with its paths."""
    root = head_folder()
    launch = _on_head(root, launch)
    write_launch(root, launch["launch"], files, last=launch["sent"]["marker"])
    return launch


def _unwritten(launch: dict[str, Any], error: Exception) -> str:
    return f"`{launch['launch']}` cannot be written on the head node: {error!r}"


def _end_unjoined(launch: dict[str, Any], error: Exception) -> int:
    """End a launch whose driver cannot join the cluster; return the exit code. Without storage,
    the log of the job alone can say why."""
    folder = launch["launch"]
    without_storage = f"it cannot join the cluster: {error!r}"
    reason = _unusable(folder) if launch["sent"] is None else without_storage
    if reason is not None:
        attempt_files.say(reason)
        return NO_STORAGE
    outcome = _driver_failed(error)
    DriverStatus(folder).end(outcome)
    return int(outcome["exit_code"])


def _read_all(folder: str) -> dict[str, bytes]:
    """The files of a folder, by name; none if it is not there."""
    files = {}
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        with open(os.path.join(folder, name), "rb") as file:
            files[name] = file.read()
    return files


def _on_head(root: str, launch: dict[str, Any]) -> dict[str, Any]:
    """A launch with the paths of the head's folder, which is `root`."""
    sent = {**launch["sent"], "objects": os.path.join(root, launch["sent"]["objects"])}
    upstreams = [_with_paths(root, upstream) for upstream in launch["upstreams"]]
    return {**_with_paths(root, launch), "sent": sent, "upstreams": upstreams}


def _with_paths(root: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, **{name: os.path.join(root, fields[name]) for name in ("launch", "back")}}


def _unusable(folder: str) -> str | None:
    """Why the driver cannot work in the launch folder; None if it can."""
    if not os.path.isdir(folder):
        return f"`{folder}` is not on this node: see `backend.storage`"
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        owner = os.stat(folder).st_uid
        return (
            f"`{folder}` belongs to the user with uid {owner}, and Ray runs here with uid "
            f"{os.getuid()}: both must be the same"
        )
    return None


def _after_stop(outcome: dict[str, Any]) -> dict[str, Any]:
    """The outcome of a run that somebody asked to stop. If its code had failed before, it failed;
    nodes may have been lost by the stop itself."""
    if outcome["state"] == "succeeded" or BLAME.get(outcome["class"]) == "error":
        return outcome
    return {**outcome, "state": "cancelled"}


def _failed(failure: str, summary: str, status: dict[str, Any] | None = None) -> dict[str, Any]:
    return {**lost_outcome(status, failure, summary, "driver"), "state": "failed"}


def _driver_failed(error: Exception) -> dict[str, Any]:
    return _failed("platform", f"the driver of this run failed: {error!r}")


def _status_fields(agent: dict[str, Any]) -> dict[str, Any]:
    """What the status repeats of that of the first agent."""
    return {name: agent.get(name) for name in _FROM_AGENT}


def _summary(outcome: dict[str, Any]) -> str:
    cause = outcome.get("first_cause") or {}
    return str(cause.get("summary") or outcome.get("class"))
