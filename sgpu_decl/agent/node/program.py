"""The program that a platform starts on each node of a run.

    python agent.zip node --run DIR --launch DIR --objects DIR [--code HEX] [--environment HEX]
                          [--back DIR] [--part BYTES] [--platform JSON] [--lifeline FD]
                          [--input NAME LAUNCH NODES DIR ...] --file NAME SHA256 ...

    fetch ─▶ settled by an earlier attempt of the platform? ─▶ prepare ─▶ agent ─▶ tell, upload
                                 └──▶ its exit code               └ fails: the agent says so

Variables of the platform say which node this is: see `platform`. SIGTERM ends the ranks, and their
files are uploaded all the same. The exit code is the run's.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import time

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.node.agent_process import attend, conclude
from sgpu_decl.agent.node.log_forwarding import Echo, say
from sgpu_decl.agent.node.missing_variables import fill_missing_variables
from sgpu_decl.agent.node.monitor_copy import MonitorCopy
from sgpu_decl.agent.node.node_inputs import NodeInputs
from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.agent.node.platform_attempts import PlatformAttempts, why_settled
from sgpu_decl.agent.node.run_cancellation import cancel_run
from sgpu_decl.agent.node.setup import TREE, SharedObjects, prepare
from sgpu_decl.agent.node.stop_request import StopRequest
from sgpu_decl.agent.node.upload import NOT_UPLOADED, NodeUpload, await_others
from sgpu_decl.agent.notices.notice_process import LONGEST, NoticeProcess
from sgpu_decl.agent.ranks.command_error import user_paths
from sgpu_decl.agent.retry_rule import CANCELLED, SUCCEEDED, why_ended
from sgpu_decl.agent.system.secrets import Redactor, receive_variables, secret_names
from sgpu_decl.content.tree_files import remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from sgpu_decl.agent.several_nodes.node_group import Node

_OUTPUT = "output"
_PATIENCE = 60.0  # seconds, for all files together
_FIRST, _LONGEST = 0.05, 2.0  # seconds between two looks
_CHUNK = 1 << 20
_PROMPT = 2.0  # seconds that the upload waits for the notice, so that the report has its result


def main(arguments: Sequence[str]) -> int:
    """Run this node's part of a run; return the run's exit code.

    The folder `--run` is deleted, with the archive of this program: nothing can be imported then.
    """
    options = _parser().parse_args(arguments[1:])
    os.umask(0o077)
    receive_variables()
    platform = PlatformTable.from_json(options.platform)
    node = platform.position(os.environ)
    fill_missing_variables(os.environ, node, platform)
    stopping = StopRequest()
    if options.lifeline is not None:
        stopping.watch_pipe(options.lifeline)
    run = _NodeRun(options, node, platform, stopping)
    try:
        return run.run()
    except OSError as error:
        say(f"this node cannot go on: {error}")
        return NOT_UPLOADED
    finally:
        run.inputs.release()
        remove(os.path.join(options.run, TREE))
        shutil.rmtree(options.run, ignore_errors=True)


class _NodeRun:
    def __init__(
        self,
        options: argparse.Namespace,
        node: Node,
        platform: PlatformTable,
        stopping: StopRequest,
    ) -> None:
        self._options = options
        self._node = node
        self._platform = platform
        self._stopping = stopping
        self._folder = node.records(options.run)
        self._back = options.back or os.path.join(options.launch, "back")
        self.inputs = NodeInputs(self._back, stopping)
        self._attempts = PlatformAttempts(self._back, most=platform.starts)
        self._target: str | None = None
        self._notice: NoticeProcess | None = None
        self._retry: Mapping[str, Any] | None = None  # until the spec is here

    def run(self) -> int:
        options, node = self._options, self._node
        problem = _fetch(options.launch, dict(options.file), options.run, self._stopping)
        spec = attempt_files.read_json(options.run, attempt_files.SPEC)
        if spec is None:
            return self._give_up(problem or "this node was asked to stop before it could begin")
        earlier, node.restart = self._attempts.look()
        self._retry = spec["retry"]
        why = why_settled(earlier, self._retry, node.restart)
        if earlier is not None and why is not None:
            code = int(earlier["exit_code"])
            settled = f"an earlier attempt of the platform settled this run, with {code}"
            say(f"nothing to do: {settled}, and {why}")
            if node.number == 0:
                self._attempts.repeat(earlier)
            self._end(earlier)
            return code
        self._claim()
        self._prepare(spec, problem)
        secrets = {name: os.environ[name] for name in secret_names(spec) if name in os.environ}
        hide = Redactor(secrets.values())
        if node.number == 0:
            self._notice = NoticeProcess(spec, options.run, dict(secrets))
        name = user_paths({**spec, "code_dir": os.path.join(options.run, spec["code_dir"])})
        echo = Echo(options.run, lambda text: hide(name(text)), self._platform)
        told = MonitorCopy(self._folder, os.path.dirname(self._target)) if self._target else None
        attend(options.run, node, self._stopping, echo, secrets, told)
        code = self._upload(hide)
        echo.finish()
        return code

    def _claim(self) -> None:
        if self._node.number == 0:
            self._target = self._attempts.claim()

    def _give_up(self, why: str) -> int:
        """End as a lost run: without its files, the agent cannot run."""
        say(why)
        os.makedirs(self._folder, exist_ok=True)
        conclude(self._folder, "staging_failed", why)
        self._claim()
        return self._upload(Redactor(()))

    def _prepare(self, spec: Mapping[str, Any], missing: str | None) -> None:
        options, node = self._options, self._node
        problem = ("staging_failed", missing) if missing is not None else None
        if problem is None and options.input:
            problem = self.inputs.bring(options.input)
        if problem is None:
            problem = prepare(
                spec, options.run, self._stopping,
                self._platform, code=options.code, environment=options.environment,
                objects=SharedObjects(options.objects, own=self._platform.own_objects),
                back=self._back,
            )  # fmt: skip
        if problem is not None:
            failure, why = problem
            node.unprepared = (failure, f"node {node.number}: {why}" if node.count > 1 else why)
            say(node.unprepared[1])
        else:  # what is newer was written by the ranks: see `working_files`
            os.utime(os.path.join(options.run, attempt_files.SPEC))

    def _upload(self, hide: Redactor) -> int:
        outcome = attempt_files.read_json(self._folder, attempt_files.OUTCOME) or {}
        code = int(outcome.get("exit_code", 1))
        target = self._target or self._attempts.join(self._node.number)
        options = self._options
        notice = self._tell(outcome)
        upload = NodeUpload(
            options.run, self._folder, target, hide, self._platform, part=options.part
        )
        try:
            run_id = self._platform.run_id(os.environ)
            code = upload.upload(_OUTPUT, exit_code=code, run_id=run_id)
        except OSError as error:
            say(f"the report of this node cannot be written to `{target}`: {error}")
            return code or NOT_UPLOADED
        failed = code != 0 and outcome.get("class") != "node_lost"
        if failed and self._platform.stops_others:
            await_others(target, self._node.count, self._stopping)
        if notice is not None:
            notice.wait(LONGEST)
        self._end(outcome)
        return code

    def _tell(self, outcome: Mapping[str, Any]) -> NoticeProcess | None:
        """Tell of the end, unless the ranks start again, here or on other nodes. A driver stops
        nodes for reasons of its own, and tells of that."""
        notice, retry = self._notice, self._retry
        if notice is None or retry is None or not outcome:
            return None
        why = why_ended(outcome, retry, other_nodes=True)
        if why is None or (why == CANCELLED and self._platform.has_driver):
            return None
        notice.start()
        notice.wait(_PROMPT)
        return notice

    def _end(self, outcome: Mapping[str, Any]) -> None:
        """Keep the platform from starting a run again in vain."""
        request, retry = self._platform.cancellation, self._retry
        if request is None or retry is None or self._node.number != 0 or self._stopping.asked:
            return
        if outcome and why_settled(outcome, retry, 0) not in (None, SUCCEEDED):
            back = self._options.back
            cancel_run(os.path.dirname(back) if back else self._options.launch, request)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agent node", description="Run one node of a run.")
    parser.add_argument("--run", required=True, metavar="DIR", help="an empty folder, deleted")
    parser.add_argument("--launch", required=True, metavar="DIR", help="the launch folder")
    parser.add_argument("--objects", required=True, metavar="DIR", help="shared by launches")
    parser.add_argument("--code", metavar="HEX", help="the digest of the code, if there is any")
    parser.add_argument("--environment", metavar="HEX", help="the digest of a manifest")
    parser.add_argument(
        "--back",
        metavar="DIR",
        help="for uploads; by default `back` of the launch folder",
    )
    parser.add_argument(
        "--part", type=int, metavar="BYTES",
        help="a larger file is uploaded in parts of this size",
    )  # fmt: skip
    parser.add_argument(
        "--platform", default="{}", metavar="JSON", help="the names of the platform"
    )
    parser.add_argument(
        "--lifeline", type=int, metavar="FD",
        help="a pipe: this node stops when its other end is closed",
    )  # fmt: skip
    parser.add_argument(
        "--input", nargs=4, action="append", default=[],
        metavar=("NAME", "LAUNCH", "NODES", "DIR"),
        help="an attempt whose output is read in DIR; LAUNCH is relative to the launch folder",
    )  # fmt: skip
    parser.add_argument(
        "--file", nargs=2, action="append", default=[], metavar=("NAME", "SHA256"),
        help="a file of the launch folder that the run needs",
    )  # fmt: skip
    return parser


def _fetch(source: str, files: Mapping[str, str], folder: str, stopping: StopRequest) -> str | None:
    """Copy files of the launch folder to the node's own disk; say which is missing, if one is.

    They were uploaded a moment ago, so a node may see them late, or not whole: each is waited for.

    Args:
        files: their names, each with its SHA-256 in hex.
    """
    deadline = time.monotonic() + _PATIENCE
    pause = _FIRST
    waiting = dict(files)
    while True:
        problems = {}
        for name, digest in list(waiting.items()):
            problem = _copy(os.path.join(source, name), os.path.join(folder, name), digest)
            if problem is None:
                del waiting[name]
            else:
                problems[name] = problem
        if not waiting or stopping.asked:
            return None
        if time.monotonic() > deadline:
            name, problem = next(iter(problems.items()))
            return f"`{name}` of the launch folder {problem}, for {_PATIENCE:g} s"
        stopping.wait(pause)
        pause = min(2 * pause, _LONGEST)


def _copy(source: str, target: str, digest: str) -> str | None:
    """Copy a file; say what is wrong with it, if something is."""
    hashed = hashlib.sha256()
    try:
        with open(source, "rb") as reading, open(target, "wb") as writing:
            while chunk := reading.read(_CHUNK):
                hashed.update(chunk)
                writing.write(chunk)
    except OSError as error:
        return f"cannot be read here ({error.strerror})"
    return None if hashed.hexdigest() == digest else "has another content than the one uploaded"
