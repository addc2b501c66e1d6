"""Turns an error into text on stderr or JSON on stdout, and into an exit code."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.commands import COMMANDS, SUBCOMMANDS
from sgpu_decl.cli.next_steps import complete_error
from sgpu_decl.cli.terminal_output import annotate, takes_colour, terminal_width
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.errors import Interrupted, SgpuError, Usage
from sgpu_decl.system_errors import advice, error_text

if TYPE_CHECKING:
    from sgpu_decl.diagnostics.diagnostic import Diagnostic

_OF_FILES = ("--var", "--var-file", "--set")
_SHOWN = (".yaml", ".yml", ".py")
_LARGEST = 10 * 2**20  # bytes of a file that an excerpt is shown of


def report(error: BaseException, arguments: Sequence[str]) -> int:
    """Show an error that ended a command, in the form that `arguments` ask for; return the code."""
    from sgpu_decl.views.envelope import enveloped

    sgpu_error = complete_error(as_sgpu_error(error, arguments))
    if wants_json(arguments):
        click.echo(enveloped(error=sgpu_error))
        return sgpu_error.exit_code
    if _option(arguments, "--output", "-o") == "github":
        annotate(sgpu_error.diagnostics or (_finding(sgpu_error),))
    show_error(sgpu_error)
    return sgpu_error.exit_code


def _finding(error: SgpuError) -> "Diagnostic":
    from sgpu_decl.diagnostics.diagnostic import Diagnostic

    return Diagnostic(code=error.code, summary=error.message, hint=error.hint)


def show_error(error: SgpuError) -> None:
    error = complete_error(error)
    show_findings(error.diagnostics, error)


def show_findings(findings: "Sequence[Diagnostic]", error: SgpuError | None = None) -> None:
    """Findings on stderr, and the error that carries them."""
    from sgpu_decl.views.errors_text import render_findings

    text = render_findings(
        findings,
        error,
        read=source_text,
        colour=takes_colour(sys.stderr),
        width=terminal_width(sys.stderr),
    )
    sys.stderr.write(mask(text) + "\n")


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether `-o json` stands on the command line, which may be one that cannot be parsed."""
    return _option(arguments, "--output", "-o") == "json"


def _option(arguments: Sequence[str], name: str, short: str | None = None) -> str | None:
    """The last value of an option on the command line."""
    value = None
    for position, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument in (name, short):
            value = "".join(arguments[position + 1 : position + 2])
        elif argument.startswith(f"{name}="):
            value = argument.removeprefix(f"{name}=")
        elif short is not None and argument.startswith(short) and not argument.startswith("--"):
            value = argument.removeprefix(short)
    return value


_RUNS_AFTER_CTRL_C = {  # of the commands that launch or follow runs
    "apply": "launched runs continue",
    "logs": "the runs continue",
    "top": "the runs continue",
    "wait": "the runs continue",
}


def as_sgpu_error(error: BaseException, arguments: Sequence[str]) -> SgpuError:
    """Give every error a message, a next step and an exit code."""
    match error:
        case SgpuError():
            return error
        case KeyboardInterrupt() | click.Abort():
            runs = _RUNS_AFTER_CTRL_C.get(arguments[0] if arguments else "")
            if runs is None:
                return Interrupted("interrupted")
            target, project = _option(arguments, "--target", "-t"), _option(arguments, "--project")
            command = "sgpu status" + (f" -t {shlex.quote(target)}" if target else "")
            command += f" --project {shlex.quote(project)}" if project else ""
            return Interrupted("interrupted", hint=f"{runs}: see `{command}`")
        case click.ClickException():
            return _usage(error, arguments)
        case OSError() if error.errno is not None:
            return _system(error)
        case MemoryError():
            return SgpuError(
                "this machine has no memory left for sgpu",
                hint="end other processes, or raise the limit (`ulimit -v`), and try again",
                code="system",
            )
        case _:
            return _crash(error)


def _usage(error: click.ClickException, arguments: Sequence[str]) -> Usage:
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", None) or _command_path(arguments)
    if isinstance(error, click.NoSuchOption) and error.option_name in _OF_FILES:
        return Usage(
            f"no such option `{error.option_name}`: `{path}` reads no run file or project file",
            hint=f"give it to `sgpu plan` or `sgpu apply`, and see `{path} --help`",
        )
    if isinstance(error, click.NoSuchOption):
        from sgpu_decl.cli.other_names import options_of, unknown_option

        options = options_of(context.command) if context is not None else ()
        return unknown_option(path, error.option_name, options)
    return Usage(message[:1].lower() + message[1:], hint=f"see `{path} --help`")


def _command_path(arguments: Sequence[str]) -> str:
    """The command that was called, for an error that click raises without its context."""
    names, table = ["sgpu"], COMMANDS
    for argument in arguments:
        if argument not in table:
            break
        names.append(argument)
        table = SUBCOMMANDS.get(argument, {})
    return " ".join(names)


def _system(error: OSError) -> SgpuError:
    return SgpuError(
        f"the operating system refused: {error_text(error)}", hint=advice(error), code="system"
    )


def _crash(error: BaseException) -> SgpuError:
    """An error that is a bug: one line, and the traceback in a file that the user can send."""
    import traceback

    text = "".join(traceback.format_exception(error))
    file = _keep(text)
    where = f"the traceback is in `{file}`" if file else mask(text)
    return SgpuError(
        f"internal error: {type(error).__name__}: {error}",
        hint=f"this is a fault of sgpu, not yours: please report it; {where}",
        code="internal",
    )


def _keep(text: str) -> Path | None:
    import tempfile

    from platformdirs import user_state_path

    for folder in (user_state_path("sgpu") / "crashes", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix="sgpu-crash-", suffix=".txt", dir=folder)
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(mask(text))
        except OSError:
            continue
        return Path(name)
    return None


def source_text(name: str) -> str | None:
    """The text of a file that a diagnostic names, for its excerpt; `None` if it cannot be read. Of
    other files than YAML and Python, only those below the current folder have one: a project that
    is somebody else's must not make sgpu show files of this user."""
    try:
        path = Path(name)
        if path.suffix not in _SHOWN and not path.resolve().is_relative_to(Path.cwd().resolve()):
            return None
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return None
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return None
