"""The way of a state of this machine into a store that machines share, and the way of a state that
was printed into any store."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from sgpu_decl.errors import SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.state import Attempt, State
from sgpu_decl.storing.journal.store import JournalStore
from sgpu_decl.storing.sqlite.database import is_migrated, migrated_file, note_place
from sgpu_decl.storing.sqlite.store import SqliteStore
from sgpu_decl.storing.state_store import Patience, StateStore, StateWriter

Everything = tuple[State, tuple[Attempt, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """How much was copied; `kept` is the file of the old state, under its new name."""

    resources: int
    attempts: int
    kept: Path


def migrate(
    local: SqliteStore,
    shared: JournalStore,
    *,
    reference: Callable[[LaunchRecord], str | None],
    patience: Patience,
) -> Migrated:
    """Copy a state under both locks, read it back, compare, and give the old file another name. It
    can be done again after a crash at any step.

    Args:
        reference: gives what finds a launch from other machines.

    Raises:
        SgpuError: there is no state to copy; or what is read back is another one, which was there
            before.
    """
    lineage = _everything(local)[0].lineage
    with (
        shared.lock("state migrate", lineage=lineage, patience=patience) as writer,
        local.lock("state migrate", lineage=lineage, patience=patience),
    ):
        state, attempts = _everything(local)
        copied = _as_shared(state, attempts, reference)
        there = writer.state
        if there.lineage == lineage and not (there.resources or there.intents):
            writer.copy(*copied, local.applied_plans())
        if _compared(shared.read_anew()) != _compared(copied):
            raise SgpuError(
                f"`{shared.name}` has another state of this project and target already",
                hint="nothing was changed. Give this project another name in `sgpu.yml`; or "
                f"use that state, and move `{local.path}` away",
                code="state_taken",
            )
        kept = migrated_file(local.path)
        note_place(local.path, shared.name)
        local.move_to(kept)  # under its lock: whoever waits for that finds no state then
    return Migrated(resources=len(state.resources), attempts=len(attempts), kept=kept)


def restore(
    store: StateStore, state: State, attempts: Sequence[Attempt], *, patience: Patience
) -> None:
    """Record a state that was printed, under the lock, in the place of what is there.

    Raises:
        SgpuError: another state is there (`state_taken`), or a newer version of this one
            (`state_older`).
    """
    if isinstance(store, SqliteStore) and is_migrated(store.path):
        _restore_migrated(store, state, attempts)
        return
    if isinstance(store, JournalStore):
        store.begin_anew(state.lineage, state.serial)
    with store.lock("state push", lineage=state.lineage, patience=patience) as writer:
        _replace(writer, state, attempts)


def _restore_migrated(store: SqliteStore, state: State, attempts: Sequence[Attempt]) -> None:
    """Make the database whole before it gets its name: an empty one would be taken for the state,
    after a crash."""
    draft = SqliteStore(store.path.with_name(f".new-{store.path.name}"))
    for end in ("", "-wal", "-shm", ".backup"):
        Path(f"{draft.path}{end}").unlink(missing_ok=True)
    with draft.lock("state push", lineage=state.lineage) as writer:
        _replace(writer, state, attempts)
        draft.move_to(store.path)


def _replace(writer: StateWriter, state: State, attempts: Sequence[Attempt]) -> None:
    there = writer.state
    if there.lineage != state.lineage:
        raise SgpuError(
            "another state of this project and target is recorded: its lineage is "
            f"`{there.lineage}`, and that of the file is `{state.lineage}`",
            hint="nothing was changed. Is it the file of another project or target?",
            code="state_taken",
        )
    if there.serial > state.serial:
        raise SgpuError(
            f"the file is older than what is recorded: its serial is {state.serial}, and that of "
            f"the state is {there.serial}",
            hint="nothing was changed; print the state again with `sgpu state pull`",
            code="state_older",
        )
    writer.replace(state, attempts)


def _everything(store: SqliteStore) -> Everything:
    everything = store.read_all()
    if everything is None:
        raise SgpuError(
            f"there is nothing to migrate: `{store.path}` holds no state",
            hint="the shared state is used already",
            code="nothing_to_migrate",
        )
    return everything


def _as_shared(
    state: State, attempts: Sequence[Attempt], reference: Callable[[LaunchRecord], str | None]
) -> Everything:
    """A state with what finds its launches from other machines, also those that are open."""

    def reference_of(launch: LaunchRecord) -> str | None:
        return reference(launch) if launch.reference is None else launch.reference

    known = {
        item.ref: replace(item, reference=reference_of(state.launch_of(item))) for item in attempts
    }
    resources = {
        address: resource
        if resource.last is None
        else replace(resource, last=known[resource.last.ref])
        for address, resource in state.resources.items()
    }
    active = tuple(known[attempt.ref] for attempt in state.active)
    intents = tuple(
        intent
        if intent.launch is None
        else replace(intent, launch=replace(intent.launch, reference=reference_of(intent.launch)))
        for intent in state.intents
    )
    return (
        replace(state, resources=resources, active=active, intents=intents),
        tuple(known.values()),
    )


def _compared(everything: Everything | None) -> object:
    if everything is None:
        return None
    state, attempts = everything
    return (
        dict(state.resources),
        state.active,
        {intent.token: intent.launch and intent.launch.reference for intent in state.intents},
        dict(state.package_lists),
        attempts,
    )
