"""`sgpu state`: show, edit, copy and compact the recorded state."""

from pathlib import Path
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
    read_duration,
)
from sgpu_decl.cli.terminal_output import answer, answer_exactly, note, show, show_exactly
from sgpu_decl.model.codec import to_json
from sgpu_decl.views.envelope import shown_values
from sgpu_decl.views.state_log_text import log_json, log_text
from sgpu_decl.views.terminal import count, json_text

if TYPE_CHECKING:
    from sgpu_decl.model.jsonable import Json
    from sgpu_decl.model.state import Resource

_at_option = click.option(
    "--at",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Show the state as it was after this entry of `sgpu state log`.",
)

command = LazyGroup(STATE_COMMANDS, "state", "Show or edit the recorded state.")


@click.command("list")
@_at_option
@project_options
@offline_option
@output_option()
def list_command(*, source: ProjectSource, at: int | None, output: str) -> int:
    """List the recorded resources. Destroyed and removed ones are marked `(gone)`."""
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
    """Remove a resource from the state. Its files and the history of its attempts stay."""
    address = str(source.recorded().state.remove(address))
    return _done({"removed": address}, output, f"forgot {address}")


@click.command("pull")
@_at_option
@project_options
@offline_option
@output_option()
def pull_command(*, source: ProjectSource, at: int | None, output: str) -> int:
    """Print the whole state as JSON, in the form of schemas/state.v1.schema.json."""
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
    """Release the lock ID that a dead sgpu left behind. The error of the lock names the ID."""
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


@click.command("log")
@click.option(
    "--tail",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Show the N newest entries.",
)
@project_options
@output_option()
def log_command(*, source: ProjectSource, tail: int, output: str) -> int:
    """Show who changed a shared state, when, and how: the newest entry comes first."""
    entries = source.recorded().state.log(tail)
    if output == "json":
        answer({"entries": log_json(entries)})
    elif entries:
        show(log_text(entries))
    else:
        note("the state has no entries yet: `sgpu apply` adds the first one")
    return 0


@click.command("push")
@click.argument("state_file", metavar="FILE", type=click.Path(path_type=Path))
@project_options
@lock_option
@output_option()
def push_command(*, source: ProjectSource, state_file: Path, output: str) -> int:
    """Replace the recorded state by FILE, which `sgpu state pull > FILE` wrote.

    So you can move a state from a shared store to this machine, or to another store. push refuses
    FILE if another state is recorded, or a newer version of this one.
    """
    done = source.recorded().state.push(state_file)
    if output == "json":
        answer({"resources": done.resources, "attempts": done.attempts})
    else:
        pushed = f"{count(done.resources, 'resource')} and {count(done.attempts, 'attempt')}"
        note(f"recorded {pushed}")
    return 0


@click.command("migrate")
@project_options
@lock_option
@output_option()
def migrate_command(*, source: ProjectSource, output: str) -> int:
    """Copy the state of this machine to the shared store that `state` in sgpu.yml names.

    migrate copies runs and their history, reads the copy back and compares it. The old file stays
    as `state.db.migrated`. Each target has its own state.
    """
    done = source.recorded().state.migrate()
    if output == "json":
        answer(to_json(done))
    else:
        copied = f"{count(done.resources, 'resource')} and {count(done.attempts, 'attempt')}"
        note(f"copied {copied}; the old state is kept as {done.kept}")
    return 0


@click.command("claim")
@project_options
@lock_option
@output_option()
def claim_command(*, source: ProjectSource, output: str) -> int:
    """Bind a shared state to this repository and folder, after you rename one of them.

    From then on, sgpu refuses commands in a checkout of another repository, or in another folder.
    Each target has its own state.
    """
    home = source.recorded().state.claim()
    if output == "json":
        answer({"repository": home.repository, "folder": home.folder})
    else:
        note(f"the state belongs to {home} now")
    return 0


@click.command("compact")
@click.option(
    "--older-than",
    required=True,
    metavar="D",
    help="Delete only entries that are older than D, such as `90d`.",
)
@project_options
@lock_option
@output_option()
def compact_command(*, source: ProjectSource, older_than: str, output: str) -> int:
    """Delete old entries of a shared state, and proposals that have expired.

    The state keeps the history of all runs. `sgpu state log` and `--at` then go back only to the
    oldest entry that is left. In PostgreSQL and in a bucket, you need the right to delete.
    """
    done = source.recorded().state.compact(read_duration(older_than))
    if output == "json":
        answer(
            {
                "entries": done.entries,
                "first": done.first,
                "proposals": done.proposals,
            }
        )
        return 0
    if done.first is None:
        note("no entry is as old as that")
    else:
        note(
            f"deleted {count(done.entries, 'entry', 'entries')}; "
            f"entry {done.first} is the oldest one now"
        )
    if done.proposals:
        note(f"deleted {count(done.proposals, 'proposal')} that had expired")
    return 0
