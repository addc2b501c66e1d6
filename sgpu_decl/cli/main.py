"""`sgpu`: run one command and turn whatever happens into an exit code.

0    ok                           4    denied by policy
1    error, invalid input         5    a watched run failed
2    something would change       64   wrong usage of the command line
3    stale plan, or state locked  130  interrupted
"""

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

import click

from sgpu_decl import __version__
from sgpu_decl.cli.commands import COMMANDS, HELP_OPTIONS, LazyGroup
from sgpu_decl.cli.next_steps import forget
from sgpu_decl.errors import SgpuError

_HELP = """Plan and apply for multi-GPU runs.

Write a run in YAML, look at the plan, apply it. `sgpu init` writes a first one."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (without the program's name) asks for; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    forget()
    # Nearly all values live until the command ends. In a plan of ten thousand runs, Python spent a
    # fifth of the time on looking for cycles among them at the end.
    atexit.register(gc.freeze)
    os.umask(os.umask(0o077) & 0o077)  # with rights that we lack ourselves, no file is of use
    closed = _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # a file name that is no UTF-8 must not break the message that shows it
            reconfigure(errors="backslashreplace")
    root = LazyGroup(COMMANDS, "sgpu", _HELP)
    root.params.append(_version_option())
    try:
        if "stdout" in closed:
            raise _stdout_closed_error()
        code = root.main(
            arguments,
            prog_name="sgpu",
            standalone_mode=False,
            help_option_names=HELP_OPTIONS,
        )
        sys.stdout.flush()
    except BrokenPipeError:
        _flush_error(sys.stdout)
        _flush_error(sys.stderr)
        return 1
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the outermost frame: every error ends as an exit code
        # nobody reads an answer on a stream that is not there
        return _report(error, () if "stdout" in closed else arguments)
    return code if isinstance(code, int) else 0


def _report(error: BaseException, arguments: Sequence[str]) -> int:
    from sgpu_decl.cli.error_exit import report

    lost = _flush_error(sys.stdout)
    if lost is None:
        try:
            return report(error, arguments)
        except OSError as again:
            lost = _flush_error(sys.stdout) or again
    # A reader that has gone, as `head` does, wants no words about it. Where stderr is full too, the
    # exit code is all that is left to say.
    if not isinstance(lost, BrokenPipeError):
        with suppress(OSError):
            report(_stdout_write_error(lost), ())
    _flush_error(sys.stderr)
    return 1


def _version_option() -> click.Option:
    def show(ctx: click.Context, _: click.Parameter, value: object) -> None:
        if value:
            click.echo(f"sgpu {__version__}")
            ctx.exit()

    return click.Option(
        ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=show,
        help="Show the version and exit.",
    )  # fmt: skip


def _open_closed_streams() -> frozenset[str]:
    """Open `/dev/null` where a standard stream is closed; return the names of those.

    Without that the next file that is opened, the state's database maybe, would get the number of
    stdout or stderr, and what a child process prints would be written into it.
    """
    closed = frozenset(item for item in ("stdin", "stdout", "stderr") if getattr(sys, item) is None)
    if not closed:
        return closed
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest free number is taken
        os.set_inheritable(number, True)  # noqa: FBT003  it takes no keyword
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if name in closed:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  stays open until the end
    return closed


def _flush_error(stream: TextIO) -> OSError | None:
    """Why a stream does not take what is left in its buffer. It goes to `/dev/null` from then on,
    since Python would try again at exit and fail with a traceback."""
    try:
        stream.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return error
    return None


def _stdout_closed_error() -> SgpuError:
    return SgpuError(
        "cannot write output: stdout is closed",
        hint="send it somewhere, such as `> /dev/null`",
        code="system",
    )


def _stdout_write_error(error: OSError) -> SgpuError:
    return SgpuError(
        f"the answer cannot be written to stdout: {(error.strerror or str(error)).lower()}",
        hint="write it elsewhere, or free space there; launched runs continue: see `sgpu status`",
        code="system",
    )
