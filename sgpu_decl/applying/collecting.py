"""Garbage collection: what ended attempts left on disk, and code and environments that nothing
refers to."""

from collections import defaultdict
from datetime import datetime

from sgpu_decl.applying.equipping import collect_environments
from sgpu_decl.applying.jobs.tidying import tidy
from sgpu_decl.applying.observing import refresh
from sgpu_decl.applying.site import Site
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Action, Plan
from sgpu_decl.model.state import Attempt
from sgpu_decl.planning.jobs.running import staged_by_jobs

__all__ = ["KEEP_LAST", "collect", "garbage", "unstage"]

KEEP_LAST = 3
_FREEING = (Action.UPDATE, Action.DESTROY)


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
            jobs = [it for it in writer.state.resources.values() if it.address.kind is Kind.JOB]
            for job in jobs:
                tidy(job, writer.state.lineage, site.keeper)
            # of all that ever ran: what an earlier call could not free may be free now
            kinds = {it.backend for it in attempts} | {it.backend for it in jobs}
            total += sum(backend(kind).tidy() for kind in kinds)
            gone = {it.ref for it in chosen}
            used = {it.code_digest for it in attempts if it.code_digest and it.ref not in gone}
            store.refer(site.state_dir / "state.db", used | staged_by_jobs(jobs, "code"))
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


def unstage(site: Site, plan: Plan) -> None:
    """Delete the code copies of all ended attempts of the runs that a plan destroyed, and what only
    they, or versions of jobs that are no more, shared."""
    destroyed = [it.address for it in plan.changes if it.action is Action.DESTROY]
    history = [it for address in destroyed for it in site.states.history(address)]
    for attempt in history:
        site.backend(attempt.backend).unstage(attempt.ref)
    kinds = {it.backend for it in history}
    kinds |= {it.backend for it in plan.changes if it.kind is Kind.JOB and it.action in _FREEING}
    for kind in kinds:
        site.backend(kind).tidy()
