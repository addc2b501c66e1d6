"""`sgpu fmt`."""

import sys
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import output_option
from sgpu_decl.cli.terminal_output import answer, note, show, takes_colour
from sgpu_decl.views.terminal import Colour, paint

if TYPE_CHECKING:
    from sgpu_decl.api.formatted_files import Formatted

_MOST = 11 << 20  # bytes that are read of standard input; more than any file may have
_COLOURS = {"+": Colour.GREEN, "-": Colour.RED, "@": Colour.CYAN}


@click.command("fmt")
@click.argument(
    "paths", nargs=-1, metavar="[PATHS]...", shell_complete=completed_by("files", "folders")
)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if something would change.")
@click.option("--diff", "with_diff", is_flag=True, help="Write nothing; show what would change.")
@output_option()
def command(*, paths: tuple[str, ...], check: bool, with_diff: bool, output: str) -> int:
    """Write run files and project files in one format.

    PATHS are files and folders, by default `.`. For a folder, fmt formats all run and project files
    in it and below it, and the files that they include. `-` formats standard input, and prints the
    result.

    fmt changes only spaces and empty lines. Values, their order, quotes, brackets, block text and
    comments stay. Before it writes a file, it checks that the result means the same.

    Exit codes: 0 ok, 1 a file cannot be formatted or, with --check, is not in the format.
    """
    from sgpu_decl.api.formatted_files import format_bytes, format_files, refused, write_formatted

    if "-" in paths and len(paths) > 1:
        raise click.UsageError("`-` stands alone: give it no other paths")
    is_stdin = paths == ("-",)
    if is_stdin:
        content = sys.stdin.buffer.read(_MOST)
        files = [format_bytes(content, "standard input")]
    else:
        files = list(format_files(paths or (".",)))
    changed = [file for file in files if file.changes]
    if not (check or with_diff or is_stdin):
        for file in changed:
            write_formatted(file)
    error = refused(files)
    if output == "json":
        data = {"files": [_file(file, whole=is_stdin) for file in files]}
        answer(data, error=error)
        return 1 if error is not None or (check and changed) else 0
    if with_diff:
        colour = takes_colour(sys.stdout)
        for file in changed:
            show(_format_diff(file.shown, file.before, file.after or "", colour=colour))
    elif is_stdin and not check:
        sys.stdout.write(files[0].after or "")
    elif not is_stdin:
        for file in changed:
            show(f"{'would format' if check else 'formatted'} {file.shown}")
    if error is not None:
        raise error
    if not is_stdin:
        same, few = len(files) - len(changed), check or with_diff
        note(f"{len(changed)} {'would change' if few else 'changed'}, {same} unchanged")
    return 1 if check and changed else 0


def _file(file: "Formatted", *, whole: bool) -> dict[str, str | bool | None]:
    named: dict[str, str | bool | None] = {"file": file.shown, "changes": file.changes}
    return {**named, "text": file.after} if whole else named


def _format_diff(name: str, before: bytes, after: str, *, colour: bool) -> str:
    """The unified diff of a file, which `patch` takes."""
    from difflib import unified_diff

    old = before.decode("utf-8", "replace").splitlines()
    lines = unified_diff(old, after.splitlines(), name, name, lineterm="")
    return "\n".join(
        paint(line, _COLOURS[line[0]], on=colour) if line[:1] in _COLOURS else line
        for line in lines
    )
