"""`sgpu state`: list, show, mv, rm, pull, unlock."""

from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.commands import STATE_COMMANDS, LazyGroup
from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import (
    ProjectSource,
    lock_option,
    offline_option,
    output_option,
    project_options,
)
from sgpu_decl.cli.terminal_output import answer, answer_exactly, note, show, show_exactly
from sgpu_decl.views.envelope import shown_values
from sgpu_decl.views.terminal import json_text

if TYPE_CHECKING:
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.state import Resource

_at_option = click.option(
    "--at",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="As it was after that entry of `sgpu state log`.",
)

command = LazyGroup(STATE_COMMANDS, "state", "Show or edit the recorded state.")


@click.command("list")
@_at_option
@project_options
@offline_option
@output_option()
def list_command(*, source: ProjectSource, at: int | None, output: str) -> int:
    """List the recorded resources. Destroyed and forgotten ones are marked `(gone)`."""
    resources = source.recorded().state.resources(at)
    if output == "json":
        answer({"resources": [_resource(resource) for resource in resources]})
        return 0
    for resource in resources:
        show(f"{resource.address}{' (gone)' if resource.gone else ''}")
    if not resources:
        note("the state holds nothing yet: `sgpu apply` records what it launches")
    return 0


@click.command("show")
@click.argument("address", shell_complete=completed_by("addresses"))
@_at_option
@project_options
@offline_option
@output_option()
def show_command(*, source: ProjectSource, address: str, at: int | None, output: str) -> int:
    """Show one resource as it was last applied."""
    data = _resource(source.recorded().state.show(address, at))
    if output == "json":
        answer(data)
    else:
        show(json_text(shown_values(data), indent=2))
    return 0


@click.command("mv")
@click.argument("old_address", metavar="SOURCE", shell_complete=completed_by("addresses"))
@click.argument("new_address", metavar="DESTINATION")
@project_options
@lock_option
@output_option()
def move_command(*, source: ProjectSource, old_address: str, new_address: str, output: str) -> int:
    """Give a resource another address, for example after its name changed in the file.

    The name of a matrix moves all of its runs.
    """
    old, new = map(str, source.recorded().state.move(old_address, new_address))
    return _done({"moved": {"from": old, "to": new}}, output, f"moved {old} to {new}")


@click.command("rm")
@click.argument("address", shell_complete=completed_by("addresses"))
@project_options
@lock_option
@output_option()
def remove_command(*, source: ProjectSource, address: str, output: str) -> int:
    """Forget a resource. Its files and the history of its attempts stay."""
    address = str(source.recorded().state.remove(address))
    return _done({"removed": address}, output, f"forgot {address}")


@click.command("pull")
@_at_option
@project_options
@offline_option
@output_option()
def pull_command(*, source: ProjectSource, at: int | None, output: str) -> int:
    """Print the whole state as JSON that fits schemas/state.v1.schema.json."""
    state = source.recorded().state.pull(at)
    if output == "json":
        answer_exactly(state)
    else:
        show_exactly(json_text(state, indent=2))
    return 0


@click.command("unlock")
@click.argument("lock_id", metavar="ID")
@project_options
@output_option()
def unlock_command(*, source: ProjectSource, lock_id: str, output: str) -> int:
    """Release the lock ID that a dead sgpu left behind; the message that refuses names it."""
    source.recorded().state.unlock(lock_id)
    return _done({"unlocked": lock_id}, output, "unlocked")


def _done(data: "Json", output: str, words: str) -> int:
    if output == "json":
        answer(data)
    else:
        note(words)
    return 0


def _resource(item: "Resource") -> "dict[str, Json]":
    return {
        "address": str(item.address),
        "backend": item.backend,
        "owner": item.owner,
        "gone": item.gone,
        "attempt": item.last.ref.number if item.last else None,
        "state": str(item.last.state) if item.last else None,
        "spec": item.spec.fields,
    }
