"""`sgpu validate`."""

import click

from sgpu_decl.cli.error_exit import show_findings
from sgpu_decl.cli.file_options import file_argument, file_options, strict_option
from sgpu_decl.cli.next_steps import complete_finding
from sgpu_decl.cli.options import ProjectSource, output_option
from sgpu_decl.cli.terminal_output import annotate, answer, show


@click.command("validate")
@file_argument
@file_options
@strict_option("Treat warnings as errors.")
@output_option("github")
def command(*, source: ProjectSource, file: str | None, strict: bool, output: str) -> int:
    """Check FILE and show every mistake in it at once, each with its place.

    Without -t, every target is checked. The checks are those of `sgpu plan` that need only the file
    and the code. Neither this machine nor a workspace is checked.

    With `-o json`, the answer also has the runs and jobs of the target with all their values
    filled in (`resolved`).

    Exit codes: 0 valid, 1 not.
    """
    validated = source.session(file).check()
    if strict:
        from sgpu_decl.api import refuse_warnings

        refuse_warnings(validated)
    if output == "json":
        answer(
            {
                "kind": validated.loaded.kind,
                "runs": [str(address) for address in validated.runs],
                "jobs": [str(address) for address in validated.jobs],
                "included": list(validated.loaded.included),
                "targets": list(validated.targets),
                "resolved": validated.loaded.resolved(),
                "diagnostics": [
                    complete_finding(finding).to_json() for finding in validated.findings
                ],
            }
        )
        return 0
    if output == "github":
        annotate([complete_finding(finding) for finding in validated.findings])
    elif validated.findings:
        show_findings([complete_finding(finding) for finding in validated.findings])
    loaded = validated.loaded
    summary = f"{_counted(len(validated.runs), 'run')}"
    if validated.jobs:
        summary += f" and {_counted(len(validated.jobs), 'job')}"
    if loaded.included:
        summary += f" in {len(loaded.included) + 1} files"
    if validated.targets:
        summary += f"; checked for {', '.join(f'`{name}`' for name in validated.targets)}"
    show(f"{loaded.file} is valid: {summary}")
    return 0


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
