"""`sgpu state`: list, show, mv, rm, pull, unlock."""

import json
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.commands import STATE_COMMANDS, LazyGroup
from sgpu_decl.cli.options import Where, output_option, where_options
from sgpu_decl.cli.showing import answer, note

if TYPE_CHECKING:
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.state import Resource

__all__ = [
    "command",
    "list_command",
    "move_command",
    "pull_command",
    "remove_command",
    "show_command",
    "unlock_command",
]

command = LazyGroup(STATE_COMMANDS, "state", "Look into the recorded state, or mend it.")


@click.command("list")
@where_options
@output_option()
def list_command(*, where: Where, output: str) -> int:
    """List the resources that the state holds, destroyed and forgotten ones marked `gone`."""
    resources = where.recorded().state_list()
    if output == "json":
        answer({"resources": [_resource(it) for it in resources]})
        return 0
    for it in resources:
        click.echo(f"{it.address}{' (gone)' if it.gone else ''}")
    return 0


@click.command("show")
@click.argument("address")
@where_options
@output_option()
def show_command(*, where: Where, address: str, output: str) -> int:
    """Show one resource as it was last applied."""
    data = _resource(where.recorded().state_show(address))
    if output == "json":
        answer(data)
    else:
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    return 0


@click.command("mv")
@click.argument("source")
@click.argument("destination")
@where_options
@output_option()
def move_command(*, where: Where, source: str, destination: str, output: str) -> int:
    """Give a resource another address, after its name was changed in the file."""
    old, new = map(str, where.recorded().state_move(source, destination))
    return _done({"moved": {"from": old, "to": new}}, output, f"moved {old} to {new}")


@click.command("rm")
@click.argument("address")
@where_options
@output_option()
def remove_command(*, where: Where, address: str, output: str) -> int:
    """Forget a resource without touching what runs."""
    removed = str(where.recorded().state_remove(address))
    return _done({"removed": removed}, output, f"forgot {removed}")


@click.command("pull")
@where_options
@output_option()
def pull_command(*, where: Where, output: str) -> int:
    """Print the whole state as JSON that fits schemas/state.v1.schema.json."""
    state = where.recorded().state_pull()
    if output == "json":
        answer(state)
    else:
        click.echo(json.dumps(state, indent=2, ensure_ascii=False))
    return 0


@click.command("unlock")
@click.argument("lock_id", metavar="ID")
@where_options
@output_option()
def unlock_command(*, where: Where, lock_id: str, output: str) -> int:
    """Release the lock ID that a dead sgpu left behind; the message that refuses names it."""
    where.recorded().state_unlock(lock_id)
    return _done({"unlocked": lock_id}, output, "unlocked")


def _done(data: "Json", output: str, words: str) -> int:
    if output == "json":
        answer(data)
    else:
        note(words)
    return 0


def _resource(it: "Resource") -> "dict[str, Json]":
    return {
        "address": str(it.address),
        "backend": it.backend,
        "owner": it.owner,
        "gone": it.gone,
        "attempt": it.last.ref.number if it.last else None,
        "state": str(it.last.state) if it.last else None,
        "spec": json.loads(it.spec),
    }
