"""The words of a plan that its text and Markdown views share."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from sgpu_decl.diagnostics.masks import masked
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.backend_kinds import job_rules
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.plan import (
    Action,
    Cause,
    Change,
    CodeChange,
    EnvironmentChange,
    Estimate,
    FieldChange,
    FieldEffect,
    PackageChange,
    Plan,
    Reason,
)
from sgpu_decl.views.launch_reason import (
    AGAIN,
    ALWAYS,
    CANCELLED,
    NOT_STARTED_WORDS,
    REASONS,
    rerun_words,
)
from sgpu_decl.views.terminal import age, count, escape, hours, size

INCOMPLETE = "This plan is not complete: some runs or jobs were left out, or could not be checked."
"""What is said of a plan that is not `complete`."""

_PATHS_SHOWN = 5
_UPSTREAMS_SHOWN = 4
_COUNTED = (Action.CREATE, Action.UPDATE, Action.DESTROY, Action.FORGET, Action.NO_OP)

_EFFECT_NOTES: Mapping[FieldEffect, str] = MappingProxyType(
    {
        FieldEffect.NEW_ATTEMPT: "",
        FieldEffect.IN_PLACE: "changed in place",
        FieldEffect.NEXT_ATTEMPT: "from the next attempt on",
        FieldEffect.STATE_ONLY: "recorded only",
    }
)

_JOB_ACTIONS: Mapping[Action, str] = MappingProxyType(
    {
        Action.CREATE: "create the job",
        Action.UPDATE: "update the job in place",
        Action.DESTROY: "delete the job, and the list of its launches",
    }
)

_JOB_REASONS: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.FIRST_RUN: "there is none yet",
        Reason.PREVIOUS_LOST: "it was deleted {where}",
        Reason.CODE_CHANGED: "the code of what it launches changed",
        Reason.ENVIRONMENT_CHANGED: "the environment of what it launches changed",
        Reason.LIVE_DRIFTED: "it was edited {where}",
    }
)


def field_note(field: FieldChange, change: Change) -> str:
    """Return what a changed field does beyond what the change says; the attempt that the change
    launches is the next one, and a job has nothing but places to be changed in."""
    if field.drifted:
        return f"edited {job_rules(change.backend).where}"
    if change.kind is Kind.JOB and field.effect is FieldEffect.IN_PLACE:
        return ""
    launches = change.action in (Action.CREATE, Action.REPLACE)
    return (
        "" if launches and field.effect is FieldEffect.NEXT_ATTEMPT else _EFFECT_NOTES[field.effect]
    )


def changes_something(plan: Plan) -> bool:
    """Whether the plan does more than list what stays as it is."""
    return not all(change.idle for change in plan.changes)


def platform_lines(plan: Plan) -> list[str]:
    """Where the runs of a plan go, a line for each platform, if not to this machine."""
    return [
        f"On {one.backend}"
        + (f": {one.host}" if one.host else "")
        + (f" as {one.user}" if one.user is not None else "")
        for one in plan.platforms
    ]


def summary_line(plan: Plan) -> str:
    """Return `Plan: 1 to create, ...` or `No changes.`: runs and jobs, then environments, if there
    are any."""
    counts = plan.summary
    if not changes_something(plan):
        parts = _kept(plan)
        return " ".join(["No changes.", *_counted(parts, plan)])
    parts = [
        f"{counts.create:,} to create",
        f"{counts.update:,} to update",
        f"{counts.replace:,} to replace",
        f"{counts.destroy:,} to destroy",
    ]
    if counts.adopt:
        parts.append(f"{counts.adopt:,} to adopt")
    if counts.forget:
        parts.append(f"{counts.forget:,} to forget")
    parts += _kept(plan) or ["0 unchanged"]
    return " ".join(["Plan:", *_counted(parts, plan)])


def _kept(plan: Plan) -> list[str]:
    """What nothing is done about: those that stay as they are, and those that would be launched if
    a run that they come after had succeeded."""
    skipped = sum(
        change.reason is Reason.UPSTREAM_FAILED and change.cause is not Cause.WITHDRAWN
        for change in plan.changes
    )
    counts = {"unchanged": plan.summary.no_op - skipped, "skipped": skipped}
    return [f"{number:,} {word}" for word, number in counts.items() if number]


def _counted(parts: list[str], plan: Plan) -> list[str]:
    actions = Counter(change.action for change in plan.changes if change.kind is Kind.ENVIRONMENT)
    environments = [
        f"{actions[action]:,} {'unchanged' if action is Action.NO_OP else f'to {action}'}"
        for action in _COUNTED
        if actions[action]
    ]
    named = f"environments: {', '.join(environments)}" if environments else ""
    text = "; ".join(filter(None, [", ".join(parts), named]))
    return [f"{text}."] if text else []


_FOLDED: Mapping[Cause, str] = MappingProxyType(
    {
        Cause.PENDING: "pending: the base does the same, and it is not applied yet",
        Cause.DRIFT: "drift: the base does the same, and nobody changed a file",
        Cause.WITHDRAWN: "withdrawn: the base would do it, and this branch does not",
    }
)


def caused_here(change: Change) -> bool:
    """Whether a plan shows a change in full: what the base would do as well is shown in a line,
    unless it destroys something."""
    if change.idle:
        return False
    return change.destructive or change.cause in (None, Cause.CHANGE)


def others_by_cause(plan: Plan) -> Iterator[tuple[str, list[Change]]]:
    """The changes that this branch does not cause, each group with its words."""
    for cause, words in _FOLDED.items():
        found = [
            change for change in plan.changes if change.cause is cause and not caused_here(change)
        ]
        if found:
            yield words, found


def launches(plan: Plan) -> bool:
    """Whether something is launched, so that it may cost something."""
    return any(change.launches for change in plan.changes)


def stops_active(change: Change) -> bool:
    """Whether a change takes GPUs from an attempt that is active, or would if it were allowed."""
    if change.kind is Kind.JOB:
        return False
    return change.destructive or change.action is Action.REPLACE


def action_words(change: Change) -> str:
    """Return the action in one word."""
    return "moved" if only_moved(change) else str(change.action)


def only_moved(change: Change) -> bool:
    """Whether nothing happens but that a history moves."""
    return change.action is Action.NO_OP and change.moved_from is not None


def moved_words(change: Change, *, literal: Callable[[str], str] = escape) -> str:
    """Return which history a change takes over; nothing for one that takes none. `literal` makes
    an address safe."""
    return f"moved from {literal(str(change.moved_from))}" if change.moved_from else ""


def what(change: Change) -> str:
    """Return what happens: `create train#8`, `replace train#7 by train#8`."""
    done = "" if change.action is Action.NO_OP else _what_is_done(change)
    return "; ".join(filter(None, (moved_words(change), done)))


def _what_is_done(change: Change) -> str:
    if change.kind is Kind.ENVIRONMENT and change.environment is not None:
        return environment_words(change.environment, whole=change.action is Action.CREATE)
    if change.kind is Kind.JOB:
        return _JOB_ACTIONS.get(change.action, "")
    launched = _ref(change, change.attempt)
    stopped = ", ".join(_ref(change, number) for number in _stopped(change))
    match change.action:
        case Action.CREATE:
            waits = change.launch.wait_for if change.launch else ()
            earlier = [_ref(change, number) for number in waits]
            ends = f" after {_having(earlier)} ended" if earlier else ""
            return f"create {launched}{ends}{upstream_words(change, also=bool(earlier))}"
        case Action.REPLACE:
            stop = f"stop {stopped or 'the active attempt'}"
            return f"{stop}, then create {launched}{upstream_words(change, also=False)}"
        case Action.DESTROY:
            return f"cancel {stopped} and destroy" if stopped else "destroy"
        case Action.ADOPT:
            return adopt_words(launched, unanswered=change.unavailable is not None)
        case Action.UPDATE:
            return "update"
        case Action.FORGET:
            return "forget; its history stays"
        case _:
            return ""


def adopt_words(attempts: str, *, unanswered: bool) -> str:
    """What is done about attempts that compute what is wanted. Those that are `unanswered` cannot
    be asked now, so nobody can follow them."""
    done = f"leave {attempts} alone" if unanswered else f"attach to {attempts}"
    return f"{done}, no new GPUs"


def upstream_words(change: Change, *, also: bool) -> str:
    """The attempts of other runs that must have succeeded."""
    refs = [escape(str(upstream.ref)) for upstream in change.after]
    if len(refs) > _UPSTREAMS_SHOWN:
        more = f"{len(refs) - _UPSTREAMS_SHOWN + 1:,} more"
        refs = [*refs[: _UPSTREAMS_SHOWN - 1], more]
    return f"{' and' if also else ' after'} {_having(refs)} succeeded" if refs else ""


def _having(refs: Sequence[str]) -> str:
    return f"{', '.join(refs)} {'has' if len(refs) == 1 else 'have'}"


def because(
    change: Change, plan: Plan, now: datetime, *, literal: Callable[[str], str] | None = None
) -> str:
    """Return the reason in words, with what became of the last attempt. `literal` makes a user's
    text safe where text for a terminal is not meant."""
    reason = reason_words(change, plan, literal=literal)
    prior = change.prior
    if prior is None:
        return reason
    when = f" {age(prior.ended_at, now)}" if prior.ended_at else ""
    ref = (literal or escape)(str(AttemptRef(change.address, prior.attempt)))
    last = f"{ref} {prior.state}{when}"
    if prior.failure is not None and prior.failure in NOT_STARTED_WORDS:
        last = f"{ref} could not start{when}: {NOT_STARTED_WORDS[prior.failure]}"
        if change.reason is Reason.PREVIOUS_FAILED:
            return last
    if change.reason is Reason.UP_TO_DATE:
        return f"{reason}: {last}"
    if prior.state.active and change.unavailable is not None:
        known = f"{ref} was {prior.state} as far as is known, and cannot be asked now"
        return known if change.reason is Reason.ALREADY_RUNNING else f"{reason} ({known})"
    if prior.state.active:
        return f"{reason} ({ref} is {prior.state})"
    return f"{reason} ({last})"


def reason_words(change: Change, plan: Plan, *, literal: Callable[[str], str] | None = None) -> str:
    """Return the reason alone."""
    if change.kind is Kind.ENVIRONMENT and change.reason is Reason.FIRST_RUN:
        return "first use"
    if plan.destroy:
        return "a destroy was requested"
    if change.kind is Kind.JOB and change.reason in _JOB_REASONS:
        return _JOB_REASONS[change.reason].format(where=job_rules(change.backend).where)
    if change.reason is Reason.FIRST_RUN and change.prior is not None:
        return AGAIN
    if change.reason is Reason.REQUESTED_RERUN and _always(change):
        return ALWAYS
    if change.reason is Reason.CANCELLED_BY_USER and change.launches:
        return CANCELLED
    if change.reason is Reason.REQUESTED_RERUN and change.prior is None:
        return REASONS[Reason.FIRST_RUN]
    if change.reason is Reason.REQUESTED_RERUN:
        return rerun_words(change.launch.owner if change.launch is not None else "")
    moved = change.action is Action.UPDATE and change.reason is not Reason.ENVIRONMENT_CHANGED
    if moved and not change.fields and change.launch is not None:
        owner = change.launch.owner
        return f"{literal(owner) if literal else f'`{escape(owner)}`'} declares it now"
    return REASONS[change.reason]


def _always(change: Change) -> bool:
    return change.launch is not None and change.launch.inputs.spec.fields.get("until") == "always"


def value(item: Json, path: str) -> str:
    """Return the value of a field as one line of JSON, safe to show; a secret by its reference."""
    if isinstance(item, dict) and item.keys() == {"secret"}:
        return f"(secret {escape(str(item['secret']))})"
    return escape(canonical(masked(item, path)))


def path_words(path: str) -> str:
    return escape(path)


def code_words(code: CodeChange, *, literal: Callable[[str], str] = escape) -> str:
    """Return how much code is sent and which files differ from the last attempt's. `literal` makes
    the path of a file safe."""
    amount = f"{count(code.files, 'file')}, {size(code.bytes)}"
    if not code.changed:
        return amount
    shown = ", ".join(literal(path) for path in code.changed[:_PATHS_SHOWN])
    more = len(code.changed) - _PATHS_SHOWN
    return f"{amount}; changed: {shown}" + (f" and {more:,} more" if more > 0 else "")


def environment_words(environment: EnvironmentChange, *, whole: bool) -> str:
    """Return how many packages differ, `+1 ~2 -0 packages`, or for a `whole` environment how many
    there are; and how much of it has to be staged."""
    packages = environment.packages
    if whole:
        amount = count(len(packages), "package")
    elif packages:
        amount = packages_amount(packages)
    else:
        amount = "the same packages with other files"
    total, missing = environment.bytes, environment.bytes_to_stage
    if total is None or missing is None:
        return f"{amount}, to be built"
    if missing == 0:
        return f"{amount}, {size(total)}, all of it staged already"
    there = f" ({size(total - missing)} already there)" if missing < total else ""
    return f"{amount}, {size(missing)} to stage{there}"


def packages_amount(packages: Sequence[PackageChange]) -> str:
    """Return how many were added, changed and removed: `+1 ~2 -0 packages`."""
    added = sum(package.before is None for package in packages)
    removed = sum(package.after is None for package in packages)
    changed = len(packages) - added - removed
    return f"+{added:,} ~{changed:,} -{removed:,} packages"


def package_words(package: PackageChange) -> str:
    """Return one changed package: `~ torch 2.7.1 -> 2.13.0`, `+ peft 0.17.1`, `- six 1.17.0`."""
    name, before, after = map(escape, (package.name, package.before or "", package.after or ""))
    if package.before is None:
        return f"+ {name} {after}"
    if package.after is None:
        return f"- {name} {before}"
    return f"~ {name} {before} -> {after}"


def estimate_words(estimate: Estimate) -> str:
    """Return the worst case in one line; what is not known is said to be so."""
    worst = estimate.gpu_hours_worst
    if worst == 0 and estimate.gpu_hours_expected == 0:
        return "no GPU hours"
    gpu = "GPU hours unknown: not every launch has a `timeout` and a number of GPUs"
    if worst is not None:
        gpu = f"at most {hours(worst)} GPU hours"
    if estimate.cost_worst is None:
        return f"{gpu}; cost unknown"
    return f"{gpu}; at most {estimate.cost_worst:,.2f} {estimate.currency or ''}".rstrip()


def _stopped(change: Change) -> tuple[int, ...]:
    return change.launch.stop if change.launch else ()


def _ref(change: Change, number: int | None) -> str:
    if number is None:
        return escape(change.address.label)
    return escape(str(AttemptRef(change.address, number)))
