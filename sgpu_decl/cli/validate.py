"""`sgpu validate`."""

import click

from sgpu_decl.cli.options import Where, file_argument, output_option, where_options
from sgpu_decl.cli.showing import answer, note

__all__ = ["command"]


@click.command("validate")
@file_argument
@where_options
@output_option()
def command(*, where: Where, file: str | None, output: str) -> int:
    """Check FILE and show every mistake in it at once, each with its place.

    Exit codes: 0 valid, 1 not.
    """
    validated = where.session(file).validate()
    if output == "json":
        answer(
            {
                "kind": validated.loaded.kind,
                "runs": [str(run.address) for run in validated.loaded.runs],
                "diagnostics": [found.to_json() for found in validated.findings],
            }
        )
        return 0
    if validated.findings:
        from sgpu_decl.views.errors_text import render_findings

        note(render_findings(validated.findings, read=lambda _: validated.source))
    count = len(validated.loaded.runs)
    click.echo(f"{validated.loaded.file} is valid: {count} {'run' if count == 1 else 'runs'}")
    return 0
