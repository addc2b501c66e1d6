"""`sgpu destroy`."""

import click

from sgpu_decl.cli.apply_flow import ApplyScreen
from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.file_options import file_options
from sgpu_decl.cli.options import ProjectSource, lock_option, output_option
from sgpu_decl.cli.run_names import file_and_names
from sgpu_decl.model.plan_options import PlanOptions


@click.command("destroy")
@click.argument(
    "words", nargs=-1, metavar="[FILE] [NAME]...", shell_complete=completed_by("runs", "files")
)
@file_options
@lock_option
@click.option(
    "--select", multiple=True, metavar="ADDRESS", help="Destroy only these (repeatable; globs)."
)
@click.option("--exclude", multiple=True, metavar="ADDRESS", help="Skip these (repeatable; globs).")
@click.option("-y", "--auto-approve", is_flag=True, help="Do not ask for approval.")
@output_option()
def command(
    *,
    source: ProjectSource,
    words: tuple[str, ...],
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    auto_approve: bool,
    output: str,
) -> int:
    """Stop runs and delete the code that was staged for them.

    NAME is the address or the name of a run, or a glob, as for `--select`. Without a NAME, all runs
    of FILE are destroyed; FILE is by default `sgpu.yml`, else `run.yaml`. If this folder has no
    such file, all runs of the project are destroyed. Logs, output and history stay, and attempt
    numbers continue.

    FILE ends in `.yaml` or `.yml`, or is a path such as `./train`. `train` is a NAME, even if there
    is a file `train`.

    Exit codes: 0 ok, 1 error, 3 locked state.
    """
    file, names = file_and_names(words)
    session = source.session(file) if file is not None else source.recorded()
    options = PlanOptions(select=(*names, *select), exclude=exclude, destroy=True)
    screen = ApplyScreen(
        session=session,
        auto=auto_approve,
        ranks=(0,),
        detach=False,
        json=output == "json",
        question="destroy all of this?",
        unattended="if that is what you want, give `-y`",
    )
    return screen.carry_out(options)
