"""`sgpu bundle`: render."""

from dataclasses import replace
from pathlib import Path

import click

from sgpu_decl.cli.commands import BUNDLE_COMMANDS, LazyGroup
from sgpu_decl.cli.file_options import file_options
from sgpu_decl.cli.options import ProjectSource, output_option
from sgpu_decl.cli.terminal_output import answer, note, show

command = LazyGroup(BUNDLE_COMMANDS, "bundle", "Write jobs as files of a Databricks bundle.")


@click.command("render")
@click.argument("file", required=False)
@file_options
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if the file would change.")
@click.option(
    "--keep", type=click.IntRange(1), default=3, show_default=True, metavar="N",
    help="Keep the files that the last N versions of the jobs need.",
)  # fmt: skip
@output_option()
def render_command(
    *, source: ProjectSource, file: str | None, check: bool, keep: int, output: str
) -> int:
    """Write the jobs of FILE, for a Databricks bundle, into the folder `sgpu` beside it.

    The jobs are in `sgpu/jobs.yml`. With a target, they are in `sgpu/jobs.NAME.yml`, for the target
    of the bundle that has the same name. The folder also has the code and all other files that the
    jobs need. Add `include: [sgpu/jobs*.yml]` and `sync: {include: ["sgpu/**"]}` to
    `databricks.yml`. The command does not ask the workspace.

    Exit codes: 0 ok, 1 error or, with `--check`, the file of the jobs would change.
    """
    from sgpu_decl.api.rendered_bundle import render

    location = source if file is None else replace(source, file=Path(file))
    rendered = render(location, keep=keep, check=check)
    if output == "json":
        answer(
            {
                "file": rendered.file,
                "jobs": list(rendered.jobs),
                "changed": rendered.changed,
                "findings": [one.to_json() for one in rendered.findings],
            }
        )
        return 1 if check and rendered.changed else 0
    for finding in rendered.findings:
        note(str(finding))
    if not rendered.changed:
        note(f"`{rendered.file}` is up to date")
    elif check:
        show(f"would change {rendered.file}")
    else:
        show(f"wrote {rendered.file}")
    return 1 if check and rendered.changed else 0
