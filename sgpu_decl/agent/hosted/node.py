"""All that happens on one node of a run, as the program that a platform starts there.

    python agent.zip node --run DIR --launch DIR --objects DIR [--code] [--environment HEX]
                          [--starts N] --file NAME SHA256 ...

    fetch ─▶ settled by an earlier attempt of the platform? ─▶ prepare ─▶ agent ─▶ bring back
                                 └──▶ its exit code               └ in vain: the agent says so

Which node this is comes from the platform: NODE_RANK, NUM_NODES, MASTER_ADDR, MASTER_PORT. SIGTERM
ends the ranks, and what they left is brought back all the same. The exit code is the run's.
"""

from __future__ import annotations

import argparse
import os
import shutil

from sgpu_decl.agent import records
from sgpu_decl.agent.environment.trees import remove
from sgpu_decl.agent.hosted.attempts import Attempts, settled
from sgpu_decl.agent.hosted.attending import attend, conclude
from sgpu_decl.agent.hosted.echoing import Echo, say
from sgpu_decl.agent.hosted.fetching import fetch
from sgpu_decl.agent.hosted.parting import await_others
from sgpu_decl.agent.hosted.preparing import TREE, prepare
from sgpu_decl.agent.hosted.returning import Returning
from sgpu_decl.agent.hosted.stopping import Stopping
from sgpu_decl.agent.nodes import Node
from sgpu_decl.agent.redacting import Redactor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

__all__ = ["main"]

_NOT_BROUGHT = 74  # sysexits.h: EX_IOERR
_OUTPUT = "output"


def main(arguments: Sequence[str]) -> int:
    """Run this node's part of a run; return the run's exit code. The folder `--run` is gone then,
    with the archive that this program is: nothing can be imported any more."""
    options = _parser().parse_args(arguments[1:])
    os.umask(0o077)
    try:
        return _Hosted(options, _position(os.environ), Stopping()).run()
    except OSError as error:
        say(f"this node cannot go on: {error}")
        return _NOT_BROUGHT
    finally:
        remove(os.path.join(options.run, TREE))
        shutil.rmtree(options.run, ignore_errors=True)


class _Hosted:
    def __init__(self, options: argparse.Namespace, node: Node, stopping: Stopping) -> None:
        self._options = options
        self._node = node
        self._stopping = stopping
        self._folder = node.records(options.run)
        self._attempts = Attempts(os.path.join(options.launch, "back"), most=options.starts)
        self._target: str | None = None

    def run(self) -> int:
        options, node = self._options, self._node
        problem = fetch(options.launch, dict(options.file), options.run, self._stopping)
        spec = records.read_json(options.run, records.SPEC)
        if spec is None:
            return self._give_up(problem or "this node was asked to stop before it could begin")
        earlier, node.restart = self._attempts.look()
        code = settled(earlier, spec["retry"], node.restart)
        if earlier is not None and code is not None:
            say(f"nothing to do: an earlier attempt of the platform settled this run, with {code}")
            if node.number == 0:
                self._attempts.repeat(earlier)
            return code
        self._claim()
        self._prepare(spec, problem)
        hide = Redactor(os.environ.get(name, "") for name in spec["secrets"])
        echo = Echo(options.run, hide)
        attend(options.run, node, self._stopping, echo)
        code = self._bring_back(hide)
        echo.finish()
        return code

    def _claim(self) -> None:
        if self._node.number == 0:
            self._target = self._attempts.claim()

    def _give_up(self, why: str) -> int:
        """End as a run that is lost: without its files not even the agent can say so."""
        say(why)
        os.makedirs(self._folder, exist_ok=True)
        conclude(self._folder, "staging_failed", why)
        self._claim()
        return self._bring_back(Redactor(()))

    def _prepare(self, spec: Mapping[str, Any], missing: str | None) -> None:
        options, node = self._options, self._node
        problem = ("staging_failed", missing) if missing is not None else None
        if problem is None:
            problem = prepare(
                spec, options.run, self._stopping,
                code=options.code, environment=options.environment, objects=options.objects,
            )  # fmt: skip
        if problem is not None:
            failure, why = problem
            node.unprepared = (failure, f"node {node.number}: {why}" if node.count > 1 else why)
            say(node.unprepared[1])

    def _bring_back(self, hide: Redactor) -> int:
        outcome = records.read_json(self._folder, records.OUTCOME) or {}
        code = int(outcome.get("exit_code", 1))
        target = self._target or self._attempts.join(self._node.number)
        returning = Returning(self._options.run, self._folder, target, hide)
        try:
            left = returning.bring(_OUTPUT)
            returning.finish(
                exit_code=code, mlflow_run_id=os.environ.get("MLFLOW_RUN_ID"), left=left
            )
        except OSError as error:
            say(f"what the run left cannot be brought back to `{target}`: {error}")
            return code or _NOT_BROUGHT
        if code != 0 and outcome.get("class") != "node_lost":
            await_others(target, self._node.count, self._stopping)
        return code


def _position(environ: Mapping[str, str]) -> Node:
    """Which node the platform says this is; one alone where it says nothing."""
    return Node(
        int(environ.get("NODE_RANK", "0")),
        int(environ.get("NUM_NODES", "1")),
        environ.get("MASTER_ADDR", "127.0.0.1"),
        int(environ.get("MASTER_PORT", "0")),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agent node", description="Run one node of a run.")
    parser.add_argument("--run", required=True, metavar="DIR", help="an empty folder, deleted")
    parser.add_argument("--launch", required=True, metavar="DIR", help="the launch folder")
    parser.add_argument("--objects", required=True, metavar="DIR", help="what launches share")
    parser.add_argument("--code", action="store_true", help="the platform brings code")
    parser.add_argument("--environment", metavar="HEX", help="the digest of a manifest")
    parser.add_argument(
        "--starts",
        type=int,
        metavar="N",
        help="the launch folder is that of a job, whose launches are started so often at most",
    )
    parser.add_argument(
        "--file", nargs=2, action="append", default=[], metavar=("NAME", "SHA256"),
        help="a file of the launch folder that the run needs",
    )  # fmt: skip
    return parser
