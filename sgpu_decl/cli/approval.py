"""Approval of a plan: by a person at a terminal, by `-y`, or by saving it."""

import click

from sgpu_decl.cli.terminal_output import interactive
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.plan import Action, Plan
from sgpu_decl.views.terminal import neutral

_CHANGING = frozenset({Action.CREATE, Action.UPDATE, Action.REPLACE, Action.DESTROY, Action.FORGET})


class NotApproved(SgpuError):
    code = "not_approved"


def has_changes(plan: Plan) -> bool:
    """Whether applying the plan would change what is recorded or what runs. To attach to a run that
    is active changes neither."""
    return any(
        change.action in _CHANGING or change.moved_from is not None for change in plan.changes
    )


def approve(
    plan: Plan, *, auto: bool, saved: bool, question: str, unattended: str, replacing: str
) -> None:
    """Return if the plan is approved.

    A `saved` plan was approved by saving it, or by the review of a proposal. `auto` (`-y`) approves
    everything but the replacement of an active run: for that, a person has to type the name of the
    run.

    Args:
        unattended: the hint if nobody can be asked.
        replacing: the hint if nobody can type the name of an active run.

    Raises:
        NotApproved: the answer was no, or nobody can be asked.
    """
    if saved or not has_changes(plan):
        return
    replaced = [str(c.address.label) for c in plan.changes if c.action is Action.REPLACE]
    if replaced:
        _approve_replacing(replaced, hint=replacing)
    confirm(question, auto=auto, unattended=unattended)


def confirm(question: str, *, auto: bool, unattended: str) -> None:
    """Return if the answer to the question is `yes`, without asking if `auto`.

    Args:
        unattended: the hint if nobody can be asked.

    Raises:
        NotApproved: the answer was no, or nobody can be asked.
    """
    if auto:
        return
    if not interactive():
        raise NotApproved(
            "cannot ask for approval: stdin or stderr is not a terminal",
            hint=unattended,
        )
    if _ask(f"{question} Type `yes` to approve") != "yes":
        raise NotApproved("not approved: nothing was changed")


def _approve_replacing(names: list[str], *, hint: str) -> None:
    listing = ", ".join(f"`{name}`" for name in names)
    if not interactive():
        raise NotApproved(
            f"this would stop active runs: {listing}; `-y` does not cover that",
            hint=hint,
        )
    for name in names:
        if _ask(f"this stops the active run `{name}`. Type its name to go on") != name:
            raise NotApproved("not approved: nothing was changed")


def _ask(question: str) -> str:
    answer = click.prompt(neutral(question), default="", show_default=False, err=True, type=str)
    return str(answer).strip()
