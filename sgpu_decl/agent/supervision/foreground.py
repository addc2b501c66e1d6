"""The agent of one node of several, which a backend starts there in the foreground.

    python agent.zip --spec RUN/spec.json --node-rank K --nodes N --master-addr A --master-port P

The folder of `spec.json` is the run's folder on this node, with `_air.py` in it; the records of
nodes other than the first lie in `nodes/K` below it. The port is that of agent 0's control
connection; agent 0 chooses the port of the ranks. Ranks inherit the environment of the agent,
secrets included. The exit code is the run's, on every node.

Folders in the spec may be relative to the run's folder, which may differ from node to node. A node
that lacks what its ranks need takes part all the same, and says so.
"""

from __future__ import annotations

import argparse
import os
import sys
from hashlib import sha256

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.relocation import place
from sgpu_decl.agent.several_nodes.node_group import SILENCE, Node
from sgpu_decl.agent.supervision.guardian import fork_supervisor, guard, supervise
from sgpu_decl.agent.supervision.orphans import start_reaper
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.locks import create_held
from sgpu_decl.agent.system.process_tree import rank_marks
from sgpu_decl.agent.system.secrets import (
    WEBHOOK_KEY,
    WEBHOOK_URL,
    receive_variables,
    secret_names,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_USAGE = 64


def main(arguments: Sequence[str]) -> int:
    """Run this node's ranks to the end; return the run's exit code."""
    options = _parser().parse_args(arguments)
    receive_variables()
    for name in (WEBHOOK_URL, WEBHOOK_KEY):  # for the node program, which tells
        os.environ.pop(name, None)
    run_dir, name = os.path.split(os.path.abspath(options.spec))
    spec = attempt_files.read_json(run_dir, name)
    node = Node(
        options.node_rank,
        options.nodes,
        options.master_addr,
        options.master_port,
        silence=options.silence,
        spec_hash=_spec_hash(spec or {}),
        unprepared=options.unprepared,
        restart=options.restart,
    )
    problem = _unusable(spec, node, options.spec)
    if spec is None or problem:
        sys.stderr.write(f"sgpu agent: {problem}\n")
        return _USAGE
    secrets = {name: os.environ[name] for name in secret_names(spec) if name in os.environ}
    spec = place(spec, run_dir)
    os.umask(0o077)
    folder = node.records(run_dir)
    os.makedirs(folder, exist_ok=True)
    try:
        lock = create_held(os.path.join(folder, attempt_files.GUARDIAN_LOCK))
    except FileExistsError:
        sys.stderr.write(f"sgpu agent: `{folder}` holds a launch of this node already\n")
        return _USAGE
    start_reaper(folder, rank_marks(spec["token"], node.number))
    processes.become_subreaper()
    tracker_pipe, tracked = os.pipe()
    answer = os.open(os.devnull, os.O_WRONLY)  # nobody waits for the answer
    attempt_files.reserve_space(folder)
    supervisor = fork_supervisor()
    if supervisor == 0:
        os.close(lock)
        supervise(spec, secrets, tracker_pipe=tracker_pipe, answer=answer, node=node)
        return 0
    os.close(tracker_pipe)
    os.close(answer)
    guard(folder, spec, supervisor, tracked, node=node, parent=options.parent)
    outcome = attempt_files.read_json(folder, attempt_files.OUTCOME)
    return int(outcome["exit_code"]) if outcome else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agent", description="Run the ranks of one node.")
    parser.add_argument("--spec", required=True, metavar="FILE")
    parser.add_argument("--node-rank", type=int, default=0, metavar="K")
    parser.add_argument("--nodes", type=int, default=1, metavar="N")
    parser.add_argument("--master-addr", default="127.0.0.1", metavar="A")
    parser.add_argument("--master-port", type=int, default=0, metavar="P")
    parser.add_argument(
        "--silence", type=float, default=SILENCE, metavar="S",
        help="a node that sends nothing for so many seconds is lost",
    )  # fmt: skip
    parser.add_argument(
        "--unprepared", nargs=2, metavar=("CLASS", "WHY"),
        help="this node cannot start ranks: the class of that failure, and a summary",
    )  # fmt: skip
    parser.add_argument(
        "--restart", type=int, default=0, metavar="I", help="how often ranks were started before"
    )
    parser.add_argument(
        "--parent", type=int, metavar="PID",
        help="end once this is not the parent any more, where the kernel does not report that",
    )  # fmt: skip
    return parser


def _spec_hash(spec: Mapping[str, Any]) -> str:
    """Return a hash of all but the folders, which may differ from node to node."""
    shared = {name: value for name, value in spec.items() if not name.endswith("_dir")}
    return sha256(attempt_files.encode(shared)).hexdigest()


def _unusable(spec: dict[str, Any] | None, node: Node, path: str) -> str | None:
    if spec is None:
        return f"`{path}` is missing or damaged"
    if node.count < 1 or not 0 <= node.number < node.count:
        return f"there is no node {node.number} of {node.count}"
    if node.count > 1 and not 0 < node.port < 65_536:
        return "several nodes need the `--master-port` of agent 0"
    if spec["world_size"] % node.count:
        return f"{spec['world_size']} ranks cannot be shared evenly by {node.count} nodes"
    return None
