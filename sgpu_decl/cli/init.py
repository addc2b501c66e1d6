"""`sgpu init`."""

import shlex
from pathlib import Path

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import output_option
from sgpu_decl.cli.terminal_output import answer, show


@click.command("init")
@click.argument("folder", default=".", metavar="[DIR]")
@click.option(
    "--from", "script", metavar="FILE.py[:FUNCTION]", shell_complete=completed_by("files"),
    help="The script that the run starts. init reads its arguments from `argparse` or a function's "
    "signature, and does not execute it.",
)  # fmt: skip
@click.option("--project", is_flag=True, help="Write a project, `sgpu.yml`, with two targets.")
@click.option(
    "--template", type=click.Choice(["gitops"]),
    help="Write a whole repository: a project of several files, and CI for GitHub and GitLab that "
    "plans pull requests and applies merges.",
)  # fmt: skip
@click.option(
    "--name", metavar="NAME",
    help="The name of the run or project; by default the name of the script or folder.",
)  # fmt: skip
@output_option()
def command(
    *,
    folder: str,
    script: str | None,
    project: bool,
    template: str | None,
    name: str | None,
    output: str,
) -> int:
    """Write a first run.yaml into DIR (here by default), with its JSON Schema. Nothing is
    overwritten.

    Without --from, init also writes a small train.py. The run has two ranks on the CPU, so it works
    on any machine.
    """
    from sgpu_decl.api.first_files import write_first_files, write_first_repository

    if template is not None:
        if script is not None or project:
            refused = "--project" if project else "--from"
            raise click.UsageError(
                f"`--template` writes a project of its own: leave `{refused}` out"
            )
        first = write_first_repository(Path(folder), name=name)
    else:
        first = write_first_files(Path(folder), name=name, script=script, project=project)
    if output == "json":
        answer({
            "written": [str(path) for path in first.written], "name": first.name,
            "required": list(first.required),
        })  # fmt: skip
        return 0
    for path in first.written:
        show(f"wrote {path}")
    if first.required:
        names = ", ".join(f"`{name}`" for name in first.required)
        show(f"\ngive {names} a value in {first.file}: `CHANGE_ME` stands there")
    shown = shlex.quote(str(first.file)) + (" -t dev" if project else "")
    show(f"\nnext:\n  sgpu plan {shown}\n  sgpu apply {shown}")
    if template is not None:
        show(f"  {shlex.quote(str(first.file.with_name('README.md')))} says how CI does it")
    show(
        "\na run that succeeded is launched again once its code changes; documents, notebooks and\n"
        "tests count only if the run reaches them: `sgpu plan --files` shows what counts"
    )
    return 0
