"""`sgpu env`: bases, show, requirements, diff."""

import sys

import click

from sgpu_decl.api import base_requirements, difference
from sgpu_decl.api.environment_calls import base_named, bases
from sgpu_decl.cli.commands import ENV_COMMANDS, LazyGroup
from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.terminal_output import answer, show, takes_colour
from sgpu_decl.views.environments_text import (
    base_to_json,
    bases_table,
    difference_text,
    difference_to_json,
    environment_text,
    environment_to_json,
)

command = LazyGroup(ENV_COMMANDS, "env", "Show and compare Python environments.")


@click.command("bases")
@output_option()
def bases_command(*, output: str) -> int:
    """List the base environments that `env.base` may name."""
    if output == "json":
        answer({"bases": [base_to_json(base) for base in bases()]})
        return 0

    show(bases_table(bases()))
    return 0


@click.command("show")
@click.argument("name", metavar="ENVIRONMENT", shell_complete=completed_by("runs"))
@project_options
@output_option()
def show_command(*, source: ProjectSource, name: str, output: str) -> int:
    """Show an environment: its Python, its CUDA, and every package.

    ENVIRONMENT is a base (`gpu-4`), `this` for the interpreter that runs sgpu, a lock file, the
    first characters of the digest of a stored snapshot, or an attempt (`train#8`).
    """
    environment, base = source.environment(name), base_named(name)
    if output == "json":
        answer(environment_to_json(environment, base))
        return 0

    show(environment_text(environment, base))
    return 0


@click.command("requirements")
@click.argument("name", metavar="BASE")
@output_option()
def requirements_command(*, name: str, output: str) -> int:
    """Print a requirements file that reproduces a base, such as `ai-4`, elsewhere.

    The file leaves out packages that no package index has. Comments name them.
    """
    text, left_out = base_requirements(name)
    if output == "json":
        answer({"base": name, "requirements": text, "left_out": left_out})
    else:
        show(text, nl=False)
    return 0


@click.command("diff")
@click.argument("before", metavar="A", shell_complete=completed_by("runs"))
@click.argument("after", metavar="B", shell_complete=completed_by("runs"))
@project_options
@output_option()
def diff_command(*, source: ProjectSource, before: str, after: str, output: str) -> int:
    """Show which packages differ from A to B. Name A and B as in `sgpu env show`."""
    differences = difference(source.environment(before), source.environment(after))
    if output == "json":
        answer(difference_to_json(differences))
        return 0

    show(difference_text(differences, colour=takes_colour(sys.stdout)))
    return 0
