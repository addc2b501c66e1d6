"""`sgpu`: run one command and turn whatever happens into an exit code.

0    ok                           4    denied by policy
1    error, invalid input         5    a watched run failed
2    something would change       64   wrong usage of the command line
3    stale plan, or state locked  130  interrupted
"""

import gc
import os
import sys
from collections.abc import Sequence

import click

from sgpu_decl.cli.commands import COMMANDS, LazyGroup

__all__ = ["main"]

_HELP = """Plan and apply for multi-GPU runs.

Write a run in YAML, look at the plan, apply it. `sgpu init` writes a first one."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (without the program's name) asks for; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # A command is short and makes many small values: the default threshold costs a third of the
    # time of a large plan.
    gc.set_threshold(100_000)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # a file name that is no UTF-8 must not break the message that shows it
            reconfigure(errors="backslashreplace")
    root = LazyGroup(COMMANDS, "sgpu", _HELP)
    root.params.append(_version_option())
    try:
        code = root.main(arguments, prog_name="sgpu", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        return 1
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the outermost frame: every error ends as an exit code
        return _report(error, arguments)
    return code if isinstance(code, int) else 0


def _report(error: BaseException, arguments: Sequence[str]) -> int:
    from sgpu_decl.cli.failing import report

    try:
        code = report(error, arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        return 1
    return code


def _silence_stdout() -> None:
    """The reader has gone: what is left in the buffer must not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version_option() -> click.Option:
    def show(ctx: click.Context, _: click.Parameter, value: object) -> None:
        if value:
            from sgpu_decl import __version__

            click.echo(f"sgpu {__version__}")
            ctx.exit()

    return click.Option(
        ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=show,
        help="Show the version and exit.",
    )  # fmt: skip
