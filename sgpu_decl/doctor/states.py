"""The states of a project: whether they are whole, who holds the lock, and interrupted changes."""

import os
from collections.abc import Iterator
from pathlib import Path

from sgpu_decl.errors import SgpuError
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn
from sgpu_decl.model.state import State
from sgpu_decl.storing.state_store import StateStore

_CHECK = "state"


def readable_state(store: StateStore) -> State | None:
    """The state, or `None` where `check_state` says why there is none."""
    try:
        return store.read()
    except SgpuError:
        return None


def check_state(store: StateStore, option: str = "") -> Iterator[Finding]:
    """Args:
    option: names the target on a command line, where it is not that of the project.
    """
    try:
        state = store.read()
        if state is None:
            yield ok(_CHECK, f"nothing was applied here yet (`{_place(store)}`)")
            return
        store.check()
        holder, dead = store.holder(), store.abandoned_lock()
    except SgpuError as error:
        yield fail(_CHECK, error.message, error.hint)
        return
    yield ok(_CHECK, f"`{_place(store)}`: whole, serial {state.serial}, {_resources(state)}")
    if dead is not None:
        yield warn(
            _CHECK,
            f"`{dead.operation}` (process {dead.pid}) has ended without releasing the lock",
            f"the next command that writes takes it; or `sgpu state unlock {dead.id}{option}`",
        )
    elif holder is not None:
        yield ok(_CHECK, f"locked by `{holder.operation}` of {holder.who}, process {holder.pid}")
    if state.intents:
        names = ", ".join(f"`{intent.address}`" for intent in state.intents)
        yield warn(
            _CHECK,
            f"a crash interrupted a change of {names}",
            f"the next `sgpu apply{option}` completes it",
        )
    if store.file is not None:
        yield from _modes(store.file)


def _place(store: StateStore) -> str:
    return os.fspath(store.file) if store.file is not None else store.url


def _modes(path: Path) -> Iterator[Finding]:
    mode = path.stat().st_mode & 0o077
    if mode:
        yield warn(_CHECK, f"other users have rights on `{path}`", f"`chmod 600 {path}`")


def _resources(state: State) -> str:
    there = [resource for resource in state.resources.values() if not resource.gone]
    return f"resources: {len(there)}, recorded as active: {len(state.active)}"
