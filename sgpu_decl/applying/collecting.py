"""Garbage collection: what ended attempts left on disk, and code and environments that nothing
refers to."""

from collections import defaultdict
from datetime import datetime

from sgpu_decl.applying.equipping import collect_environments
from sgpu_decl.applying.observing import refresh
from sgpu_decl.applying.site import Site
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.state import Attempt

__all__ = ["KEEP_LAST", "collect", "garbage", "unstage"]

KEEP_LAST = 3


def garbage(
    attempts: list[Attempt], *, keep_last: int | None, older_than: float | None, now: datetime
) -> list[Attempt]:
    """Choose the ended attempts to free: beyond the newest `keep_last` of each run, and older than
    `older_than` seconds where an age is given. With an age alone, age alone decides."""
    kept = keep_last if keep_last is not None else (0 if older_than is not None else KEEP_LAST)
    by_run: dict[object, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_run[attempt.ref.address].append(attempt)
    chosen = []
    for history in by_run.values():
        newest_first = sorted(history, key=lambda it: it.ref.number, reverse=True)
        for attempt in newest_first[kept:]:
            if attempt.state.active:
                continue
            ended = attempt.ended_at or attempt.created_at
            if older_than is None or (now - ended).total_seconds() > older_than:
                chosen.append(attempt)
    return sorted(chosen, key=lambda it: it.ref)


def collect(
    site: Site, *, keep_last: int | None, older_than: float | None, dry_run: bool, now: datetime
) -> dict[str, Json]:
    """Free what `garbage` chooses, then code and environments that no project refers to.

    Returns:
        `attempts` (written `train#8`), `bytes` of their folders, `code_bytes` and
        `environment_bytes` of the stores.
    """
    backend, store = site.backend, site.store
    if site.states.read() is None:
        return {"attempts": [], "bytes": 0, "code_bytes": 0, "environment_bytes": 0}
    with site.writing("gc") as writer:
        refresh(writer, backend)
        known = site.states.read_all()
        attempts = list(known[1]) if known else []
        chosen = garbage(attempts, keep_last=keep_last, older_than=older_than, now=now)
        freed: list[AttemptRef] = []
        total = 0
        for attempt in chosen:
            size = backend(attempt.backend).size(attempt.ref)
            if size == 0:
                continue
            freed.append(attempt.ref)
            total += size if dry_run else backend(attempt.backend).free(attempt.ref)
        if not dry_run:
            # of all that ever ran: what an earlier call could not free may be free now
            total += sum(backend(kind).tidy() for kind in {it.backend for it in attempts})
            gone = {it.ref for it in chosen}
            used = {it.code_digest for it in attempts if it.code_digest and it.ref not in gone}
            store.refer(site.state_dir / "state.db", used)
        code = environments = 0
        if not dry_run:
            code = store.collect()
            environments = collect_environments(site)
    return {
        "attempts": [str(ref) for ref in freed],
        "bytes": total,
        "code_bytes": code,
        "environment_bytes": environments,
    }


def unstage(site: Site, addresses: list[Address]) -> None:
    """Delete the code copies of all ended attempts of these runs, and what only they shared."""
    history = [it for address in addresses for it in site.states.history(address)]
    for attempt in history:
        site.backend(attempt.backend).unstage(attempt.ref)
    for kind in {it.backend for it in history}:
        site.backend(kind).tidy()
