"""`sgpu init`."""

import re
import shlex
from pathlib import Path

import click

from sgpu_decl.cli.options import output_option
from sgpu_decl.cli.terminal_output import answer, show

__all__ = ["command"]


@click.command("init")
@click.argument("folder", default=".", metavar="[DIR]")
@click.option("--name", metavar="NAME", help="The run's name; the folder's by default.")
@output_option()
def command(*, folder: str, name: str | None, output: str) -> int:
    """Write a first run.yaml and train.py into DIR (here by default). Nothing is overwritten.

    The run is two ranks on the CPU, so it works on any machine.
    """
    from sgpu_decl.errors import SgpuError

    into = Path(folder)
    run_name = name if name is not None else _name_of(into)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", run_name):
        raise click.UsageError(
            f"`{run_name}` is not a name for a run: letters, digits, `_` and `-`, at most 100"
        )
    if into.exists() and not into.is_dir():
        raise SgpuError(
            f"`{into}` is a file, not a folder", hint="name another folder", code="exists"
        )
    files = {into / "run.yaml": _run_file(run_name), into / "train.py": _template("train.py")}
    there = [str(path) for path in files if path.exists() or path.is_symlink()]
    if there:
        raise SgpuError(
            f"there is a `{there[0]}` already",
            hint="nothing was written: use another folder, `sgpu init DIR`",
            code="exists",
        )
    into.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    if output == "json":
        answer({"written": [str(path) for path in files], "name": run_name})
        return 0
    shown = shlex.quote(str(into / "run.yaml"))
    for path in files:
        show(f"wrote {path}")
    show(f"\nnext:\n  sgpu plan {shown}\n  sgpu apply {shown}")
    return 0


def _name_of(folder: Path) -> str:
    from sgpu_decl.api import current_folder

    whole = (current_folder() / folder).resolve()
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", whole.name).strip("-_")
    return plain[:100] or "train"


def _run_file(name: str) -> str:
    from sgpu_decl.shipped_files import shipped_folder

    schema = shipped_folder("schemas") / "run.v1.schema.json"
    return _template("run.yaml").replace("@SCHEMA@", schema.as_uri()).replace("@NAME@", name)


def _template(name: str) -> str:
    from sgpu_decl.shipped_files import shipped_folder

    return (shipped_folder("templates") / "init" / name).read_text(encoding="utf-8")
