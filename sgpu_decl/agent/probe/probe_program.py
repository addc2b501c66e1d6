"""`python agent.zip probe ACT …`: one node of a probe, as the command of a launch starts it.

    report    records the facts of the node, and what it can reach
    tree      makes a locked environment, and logs to MLflow from it
    fail      ends with exit code 3
    hold      goes on until it is killed
    retried   fails the first time, and goes on the second time until it is killed
    gang      records what several nodes can do together; then the last of them fails

Records go to the folder `--out`, and to stdout. A file `ping` appears in `--out` if the caller
measures how long files take to become visible.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time

from sgpu_decl.agent.attempt.relocation import activated
from sgpu_decl.agent.node.missing_variables import fill_missing_variables
from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.agent.node.setup import TREE, SharedObjects, hydrate
from sgpu_decl.agent.node.stop_request import StopRequest
from sgpu_decl.agent.probe.between_nodes import Meeting, collectives, position
from sgpu_decl.agent.probe.libraries import INDEX, MLFLOW, SDK, run_program
from sgpu_decl.agent.probe.node_facts import node_facts
from sgpu_decl.agent.probe.probe_report import ProbeRecord, write_line
from sgpu_decl.agent.system.fast_stdlib import signal
from sgpu_decl.content.tree_files import remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sgpu_decl.agent.several_nodes.node_group import Node

FAILURE = 3
"""The exit code of a node that fails on purpose."""

_LONGEST = 1 << 20  # bytes of a line: as the node agent's
_LATEST = 120.0  # seconds until the last node has failed
_PING = 120.0  # seconds
_BEAT = 0.5  # seconds


def main(arguments: Sequence[str]) -> int:
    """Run one act; return its exit code. The folder `--run` is deleted."""
    options = _parser().parse_args(arguments[1:])
    os.umask(0o077)
    options.platform = PlatformTable.from_json(options.platform)
    node = options.platform.position(os.environ)
    record = ProbeRecord(options.out, node.number)
    try:
        return _ACTS[options.act](record, node, options)
    finally:
        shutil.rmtree(options.run, ignore_errors=True)


def _report(record: ProbeRecord, node: Node, options: argparse.Namespace) -> int:
    facts = node_facts(os.environ, options.source, options.run)
    facts |= {"writes": record.problem is None, "write_problem": record.problem}
    if options.secret:
        facts["secret"] = bool(os.environ.get(options.secret))
    record.say("node", {**facts, "position": position(node)})
    write_line(_LONGEST)
    record.say("ready", {})
    visible = record.await_file(os.path.join(options.out, "ping"), options.seconds or _PING)
    record.say("pong", {"seen": visible})
    fill_missing_variables(os.environ, node, options.platform)
    record.say("sdk", run_program(sys.executable, SDK, [], os.environ))
    record.say("mlflow", run_program(sys.executable, MLFLOW, ["sgpu_doctor"], os.environ))
    record.say("index", run_program(sys.executable, INDEX, [], os.environ))
    record.say("done", {})
    return 0


def _tree(record: ProbeRecord, node: Node, options: argparse.Namespace) -> int:
    """Use MLflow from an interpreter without packages of the platform, as ranks would."""
    objects = SharedObjects(options.objects)
    problem = hydrate(options.run, options.environment, objects, StopRequest())
    record.say("tree", {"problem": None if problem is None else problem[1]})
    if problem is None:
        fill_missing_variables(os.environ, node, options.platform)
        programs = os.path.join(options.run, TREE, "bin")
        environ = {**os.environ, **activated(programs, options.run)}
        python = os.path.join(programs, "python")
        record.say("mlflow", run_program(python, MLFLOW, ["sgpu_doctor_tree"], environ))
    remove(os.path.join(options.run, TREE))
    return 0


def _fail(record: ProbeRecord, _node: Node, _options: argparse.Namespace) -> int:
    record.say("failing", {"exit_code": FAILURE})
    return FAILURE


def _hold(record: ProbeRecord, _node: Node, options: argparse.Namespace) -> int:
    hold(record, options.seconds, Sigterm())
    return 0


def _retried(record: ProbeRecord, _node: Node, options: argparse.Namespace) -> int:
    """If a limit of `--seconds` is for all attempts together, the second one has a third of it."""
    record.say("began", {})
    if record.attempt == 0:
        time.sleep(options.seconds * 2 / 3)
        return FAILURE
    hold(record, 2 * options.seconds, Sigterm())
    return 0


def _gang(record: ProbeRecord, node: Node, options: argparse.Namespace) -> int:
    sigterm = Sigterm()  # another node may fail before this one holds
    fill_missing_variables(os.environ, node, options.platform)
    record.say("node", {"position": position(node)})
    master = Meeting(node, node.port, options.seconds)
    other = Meeting(node, node.port + 1, options.seconds)
    record.say("ports", {"master": master.result, "other": other.result})
    master.close()
    if master.result["open"]:
        record.say("collectives", collectives(node, node.port, os.environ))
    try:
        other.agree()
    except OSError as error:
        record.say("alone", {"error": str(error)})
    if node.number == node.count - 1:
        record.say("failing", {"exit_code": FAILURE})
        return FAILURE
    hold(record, max(_LATEST, options.seconds), sigterm)
    return 0


_ACTS = {
    "report": _report,
    "tree": _tree,
    "fail": _fail,
    "hold": _hold,
    "retried": _retried,
    "gang": _gang,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agent probe", description="Measure a node.")
    parser.add_argument("act", choices=sorted(_ACTS))
    parser.add_argument("--run", required=True, metavar="DIR", help="an empty folder, deleted")
    parser.add_argument("--source", default="", metavar="FILE", help="BASH_SOURCE of the command")
    parser.add_argument("--out", required=True, metavar="DIR", help="where records go")
    parser.add_argument("--seconds", type=float, default=0.0, metavar="S")
    parser.add_argument("--secret", default="", metavar="NAME", help="the variable of a secret")
    parser.add_argument("--environment", default="", metavar="HEX", help="a manifest's digest")
    parser.add_argument("--objects", default="", metavar="DIR", help="the folder of its packs")
    parser.add_argument("--platform", default="{}", metavar="JSON", help="its names")
    return parser


class Sigterm:
    """Notes the first SIGTERM, and does not end by it. `at` is its monotonic time."""

    def __init__(self) -> None:
        self.at: float | None = None
        self._wakeup, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGTERM, self._on_signal)

    def wait(self, seconds: float) -> None:
        """Wait for so long, or until it comes."""
        import select

        if select.select([self._wakeup], [], [], seconds)[0]:
            os.read(self._wakeup, 64)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self.at is None:
            self.at = time.monotonic()
        os.write(self._wake, b"!")


def hold(record: ProbeRecord, seconds: float, sigterm: Sigterm) -> None:
    """Go on for so long, and write an `alive` record twice a second. SIGTERM is only noted, so the
    last of these records shows when SIGKILL came."""
    start = time.monotonic()
    record.say("holding", {})
    noted = False
    while (now := time.monotonic()) - start < seconds:
        term = sigterm.at
        if term is not None and not noted:
            noted = True
            record.say("asked", {"after": round(term - start, 2)})
        since = {} if term is None else {"since_asked": round(now - term, 2)}
        record.say("alive", {"for": round(now - start, 2), **since})
        sigterm.wait(_BEAT)
