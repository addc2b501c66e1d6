"""Proposals: what plans have shown, and whether it covers what an apply is about to do."""

import json
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, cast

from sgpu_decl import __version__
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import StalePlan
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.codec import BadValue, JsonObject, to_json
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.plan import Action, Plan
from sgpu_decl.model.proposal import Content, Effect, Proposal
from sgpu_decl.model.state import Attempt, State
from sgpu_decl.model.state_log import ApplySource
from sgpu_decl.planner.effects import carried_out, covers, effect_differences, effects_of
from sgpu_decl.planning.prepared import Prepared
from sgpu_decl.planning.project import Project
from sgpu_decl.storing.proposals import KEPT
from sgpu_decl.storing.state_store import user_name

if TYPE_CHECKING:
    from sgpu_decl.code.snapshot import Snapshot

_VERSION = 1
_LARGEST = 256 << 20  # bytes of a proposal
_GZIP = 31  # the format that `gunzip` reads
_PREFIX = 16  # of the digest of a file


def propose(project: Project, prepared: Prepared, link: str | None) -> Proposal | None:
    """Keep the effects of a plan with the state; None if it has none.

    Args:
        link: where people review the plan, such as the address of a pull request.

    Raises:
        SgpuError: the proposal cannot be kept.
    """
    plan, contents = prepared.plan, _Contents(project, prepared)
    effects = effects_of(plan)
    if not effects:
        return None
    proposal = Proposal(
        id=uuid.uuid4().hex,
        target=plan.target,
        lineage=plan.lineage,
        serial=plan.serial,
        tool_version=__version__,
        who=user_name(),
        effects=effects,
        commit=plan.git.commit if plan.git else None,
        tree=plan.git.tree if plan.git else None,
        link=link,
        heals=prepared.heals,
        contents=tuple(
            Content(digest=digest, items=items)
            for digest in sorted({*_digests(effects)})
            if (items := contents.get(digest)) is not None
        ),
    )
    written = cast("dict[str, Json]", to_json(proposal))
    text = canonical({"v": _VERSION, **written})
    content = zlib.compress(text.encode("utf-8", "surrogatepass"), wbits=_GZIP)
    project.proposals.propose(proposal.id, content)
    return proposal


def source_of(plan: Plan, shown: Sequence[Proposal]) -> ApplySource | None:
    """On whose behalf a plan is applied, which these proposals have shown; None if nothing is known
    of that."""
    users = dict.fromkeys(one.user for one in plan.platforms if one.user is not None)
    if not (users or shown):
        return None
    return ApplySource(
        principal=", ".join(users) or None,
        proposals=tuple(one.id for one in shown),
        links=tuple(dict.fromkeys(one.link for one in shown if one.link is not None)),
    )


def check_reviewed(project: Project, prepared: Prepared, state: State) -> tuple[Proposal, ...]:
    """Check that each effect of a plan stands in an open proposal of its target. A plan that heals
    may also take the newest proposal of those that were made for that.

    Args:
        state: the one that the plan was made for.

    Returns:
        The proposals that show them.

    Raises:
        StalePlan: one does not: `diagnostics` has all of these, each with what differs from the
            nearest proposal.
    """
    missing = {effect.address: effect for effect in effects_of(prepared.plan)}
    seen: dict[Address, list[_Shown]] = {}
    history = _History(project, state)
    healed, covering = not prepared.heals, dict[str, Proposal]()
    for proposal, at in _proposals(project, prepared.plan.target, state):
        if not missing:
            break
        if proposal.heals:
            if healed:
                continue
            healed = True
        for effect in proposal.effects:
            planned = missing.get(effect.address)
            if planned is None:
                continue
            became = history.became(effect)
            if became is None and covers(effect, planned):
                del missing[effect.address]
                covering[proposal.id] = proposal
                seen.pop(effect.address, None)
            else:
                shown = _Shown(effect=effect, proposal=proposal, at=at, became=became)
                seen.setdefault(effect.address, []).append(shown)
    if missing:
        contents = _Contents(project, prepared)
        raise _not_reviewed(prepared, missing, seen, contents)
    return tuple(covering.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """An effect that a proposal shows. `became` says in words what it was carried out as."""

    effect: Effect
    proposal: Proposal
    at: datetime
    became: str | None


class _History:
    """What effects became. The attempts of each address are read once, and only where one may be
    carried out."""

    def __init__(self, project: Project, state: State) -> None:
        self._project = project
        self._state = state

    def became(self, effect: Effect) -> str | None:
        """The attempt or the job that an effect became, in words; None while it is open."""
        resource = self._state.resources.get(effect.address)
        if resource is None:
            return None
        if effect.kind is Kind.JOB:
            # Older proposals do not say which job it was to be.
            made = effect.action is Action.CREATE and resource.numbered >= (effect.attempt or 1)
            return f"`{effect.address}`, which is gone since" if made else None
        if effect.attempt is None:
            return None
        attempt = carried_out(effect, self._attempts.get(effect.address, ()))
        return f"`{attempt.ref}`" if attempt is not None else None

    @cached_property
    def _attempts(self) -> Mapping[Address, Sequence[Attempt]]:
        found: dict[Address, list[Attempt]] = {}
        recorded = self._project.states.read_all()
        for attempt in recorded[1] if recorded else ():
            found.setdefault(attempt.ref.address, []).append(attempt)
        return found


class _Contents:
    """The files and packages that the digests of a plan stand for."""

    def __init__(self, project: Project, prepared: Prepared) -> None:
        self._project = project
        self._code: Mapping[str, Snapshot] = prepared.code
        self._lists: Mapping[str, PackageList] = {
            item.digest: item for item in prepared.plan.package_lists
        }

    def get(self, digest: str) -> Mapping[str, str] | None:
        """The files of the code, or the packages of the list; None where they are not known."""
        if (packages := self._lists.get(digest)) is not None:
            return {item.name: item.version for item in packages.packages}
        code = self._code.get(digest) or self._project.store.manifest(digest)
        if code is None:
            return None
        return {
            one.path: f"{one.target or one.digest[:_PREFIX]}{' executable' * one.executable}"
            for one in code.entries
        }


def _digests(effects: Iterable[Effect]) -> Iterator[str]:
    for effect in effects:
        yield from filter(None, (effect.code, effect.packages))


def _not_reviewed(
    prepared: Prepared,
    missing: Mapping[Address, Effect],
    seen: Mapping[Address, Sequence[_Shown]],
    contents: _Contents,
) -> StalePlan:
    """The error with all that no proposal covers. Cells of a matrix that differ alike share one
    finding."""
    plan = prepared.plan
    alike: dict[tuple[Kind, str, Action, str], list[Effect]] = {}
    for address, effect in missing.items():
        shown = [(one, _differences(one, effect, contents)) for one in seen.get(address, ())]
        key = (address.kind, address.name, effect.action, _nearest(shown))
        alike.setdefault(key, []).append(effect)
    findings = tuple(
        Diagnostic(code="not_reviewed", summary=_label(effects) + words)
        for (*_, words), effects in alike.items()
    )
    amount = _amount(len(missing), len(effects_of(plan)))
    where = f" of the target `{plan.target}`" if plan.target else ""
    return StalePlan(
        f"{amount} in no open proposal{where}: nothing was changed",
        hint="propose the missing changes with `sgpu plan --propose"
        f"{' --heal' * prepared.heals}`; apply again after the review",
        code="not_reviewed",
        diagnostics=findings,
    )


def _amount(missing: int, total: int) -> str:
    if total == 1:
        return "the change of this plan is"
    return f"{missing:,} of {total:,} changes {'is' if missing == 1 else 'are'}"


def _label(effects: Sequence[Effect]) -> str:
    address, action = effects[0].address, effects[0].action
    if len(effects) == 1:
        return f"`{address}` ({action})"
    return f"`{address.kind}.{address.name}` ({action}, {len(effects):,} cells)"


def _differences(shown: _Shown, planned: Effect, contents: _Contents) -> list[str]:
    theirs = {item.digest: item.items for item in shown.proposal.contents}
    return effect_differences(shown.effect, planned, before=theirs.get, after=contents.get)


def _nearest(shown: Sequence[tuple[_Shown, list[str]]]) -> str:
    """What differs from the proposal that is nearest: an open one, if one is."""
    if not shown:
        return f" is in no proposal of the last {KEPT.days} days"
    nearest, differences = min(shown, key=lambda one: (one[0].became is not None, len(one[1])))
    proposal = nearest.proposal
    source = proposal.link or (f"commit {proposal.commit[:12]}" if proposal.commit else "")
    what = f"what {proposal.who} proposed on {nearest.at:%Y-%m-%d %H:%M} UTC"
    what += f" ({source})" if source else ""
    became = f" was carried out as {nearest.became}" if nearest.became else ""
    if not differences:
        return f": {what}{became}"
    return f" differs from {what}{became and f', which{became}'}: {'; '.join(differences)}"


def _proposals(
    project: Project, target: str | None, state: State
) -> Iterator[tuple[Proposal, datetime]]:
    """Those of the target and of this state. What another version of sgpu wrote otherwise, or is
    damaged, approves nothing."""
    for stored in project.proposals.proposals():
        proposal = _read(stored.content)
        if (
            proposal is not None
            and proposal.target == target
            and (proposal.serial == 0 or proposal.lineage == state.lineage)
        ):
            yield proposal, stored.at


def _read(content: bytes) -> Proposal | None:
    try:
        text = zlib.decompressobj(wbits=_GZIP).decompress(content, _LARGEST)
        value = json.loads(text)
        if not isinstance(value, dict) or value.pop("v", None) != _VERSION:
            return None
        return JsonObject(value).whole(Proposal)
    except (zlib.error, ValueError, RecursionError, BadValue):
        return None
