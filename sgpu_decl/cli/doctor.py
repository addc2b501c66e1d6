"""`sgpu doctor`."""

import sys
from collections.abc import Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.commands import examples
from sgpu_decl.cli.next_steps import complete_finding
from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.probe import probe_findings, probe_options, sigterm_as_interrupt
from sgpu_decl.cli.terminal_output import answer, note, show, takes_colour
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.errors import Interrupted, SgpuError, Usage
from sgpu_decl.model.probe import ProbeOptions
from sgpu_decl.views.doctor_text import finding_text, findings_json, findings_summary, report_text
from sgpu_decl.views.terminal import count

if TYPE_CHECKING:
    from sgpu_decl.api import Session
    from sgpu_decl.model.doctor_finding import Finding

_profile_option = click.option(
    "--profile",
    metavar="FILE",
    help="Write the measured values to this new file, for `sgpu dev workspace --profile`.",
)


@click.group("doctor", invoke_without_command=True)
@project_options
@click.option(
    "--platform", is_flag=True,
    help="Check the platforms of the runs, like -t, for a file without targets.",
)  # fmt: skip
@_profile_option
@output_option()
@click.pass_context
def command(
    context: click.Context,
    *,
    source: ProjectSource,
    platform: bool,
    profile: str | None,
    output: str,
) -> int:
    """Check this machine and this project.

    Each line begins with ok, warn or fail. A hint below it says what to do.

    With -t, check the platforms that the runs of the target use. In a Databricks workspace this
    checks the login, the APIs, and files in the staging folder. It is free, takes less than 30 s,
    and leaves nothing behind.

    The exit code is 1 if a check failed.
    """
    if context.invoked_subcommand is not None:
        if source != ProjectSource() or platform or profile or output != "text":
            name = context.invoked_subcommand
            raise Usage(
                f"options of `{name}` follow its name", hint=f"sgpu doctor {name} -t TARGET"
            )
        return 0
    session = _opened(source)
    if source.target is not None or platform:
        return _measured(session, "free", session.doctor.target(), profile, output)
    if profile is not None:
        hint = "name it with `-t`, or add `--platform`"
        raise Usage("`--profile` goes with a platform", hint=hint)
    if not session.in_project:
        note(
            f"note: no project in `{session.root}` or in a folder above it: only this machine is "
            "checked"
        )
    return _report(session.doctor.machine(), output, _project(session))


@command.command("probe", epilog=examples("doctor probe"))
@project_options
@probe_options
@click.option("-y", "--auto-approve", is_flag=True, help="Launch without asking.")
@_profile_option
@output_option()
def probe_command(
    *,
    source: ProjectSource,
    options: ProbeOptions,
    auto_approve: bool,
    profile: str | None,
    output: str,
) -> int:
    """Launch short runs that measure the nodes of the platforms that the target uses.

    The runs use GPUs, so the command shows their cost and asks first. At the end, and after Ctrl-C,
    it deletes all files of the runs.

    The exit code is 1 if a check failed.
    """
    session = _opened(source)
    findings = probe_findings(session, options, auto=auto_approve)
    return _measured(session, "probe", findings, profile, output, only=options.only)


@command.command("report", epilog=examples("doctor report"))
@project_options
def report_command(*, source: ProjectSource) -> int:
    """Print the last findings of `sgpu doctor -t TARGET` without names, hosts or ids, for an
    issue."""
    session = source.session()
    session.check_target()
    show(report_text(session.doctor.kept()).removesuffix("\n"))
    return 0


def _opened(source: ProjectSource) -> "Session":
    session = source.session()
    if source.target is not None:
        session.check_target()
    return session


def _project(session: "Session") -> str | None:
    return str(session.root) if session.in_project else None


def _measured(
    session: "Session",
    kind: str,
    findings: "Generator[Finding, None, None]",
    profile: str | None,
    output: str,
    *,
    only: tuple[str, ...] = (),
) -> int:
    """Report what is found of platforms, and keep it. Returns the exit code."""
    keep = _kept(session, kind, findings, None if profile is None else Path(profile), only=only)
    try:
        with sigterm_as_interrupt(), closing(keep) as kept_findings:
            return _report(kept_findings, output, _project(session))
    except KeyboardInterrupt:
        hint = "what was made in the workspace is deleted; nothing goes on there"
        raise Interrupted("interrupted", hint=hint) from None


def _kept(
    session: "Session",
    kind: str,
    findings: "Generator[Finding, None, None]",
    profile: Path | None,
    *,
    only: tuple[str, ...],
) -> "Generator[Finding, None, None]":
    """The findings as they come; at the end they are kept, with the profile."""
    if profile is not None:
        session.doctor.refuse_profile(profile)
    results: list[Finding] = []
    with closing(findings):
        for finding in findings:
            results.append(finding)
            yield finding
    written = session.doctor.keep(kind, results, profile, only=only)
    if written is not None:
        target = "" if session.target is None else f" -t {session.target}"
        note(f"profile: `{written}`; `sgpu dev workspace --profile FILE` behaves like it")
        note(f"`sgpu doctor report{target}` prints this without names, for an issue")


def _report(findings: "Iterable[Finding]", output: str, project: str | None) -> int:
    """Show findings as they come, or all of them as one JSON object. Return the exit code.

    Args:
        project: the folder of the project that was checked too, if there is one.

    Raises:
        SgpuError: a check failed, and the output is text.
    """
    results = []
    for finding in findings:
        results.append(complete_finding(finding))
        if output == "text":
            show(finding_text(results[-1], colour=takes_colour(sys.stdout)))
    failure = _failure(results)
    if output == "json":
        answer({"project": project, **findings_json(results)}, error=failure)
        return failure.exit_code if failure else 0
    note(findings_summary(results))
    if failure is not None:
        raise failure
    return 0


def _failure(findings: "list[Finding]") -> SgpuError | None:
    failed = [finding for finding in findings if finding.severity is Severity.ERROR]
    if not failed:
        return None
    names = ", ".join(dict.fromkeys(f"`{item.code}`" for item in failed))
    return SgpuError(
        f"{count(len(failed), 'check')} failed: {names}",
        hint="the lines that begin with `fail` say what to do",
        code="checks_failed",
    )
