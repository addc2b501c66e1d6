"""What people see of a plan: pictures as golden files, and rules that hold for every one."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import NOT_STARTED, AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.event import ApplyEvent, Step
from sgpu_decl.model.jsonable import NO_FIELDS
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.plan import (
    Action,
    Change,
    CodeChange,
    EnvironmentChange,
    Estimate,
    FieldChange,
    FieldEffect,
    Plan,
    PlannedLaunch,
    Prior,
    Reason,
    Summary,
)
from sgpu_decl.views import plan_markdown, plan_text
from sgpu_decl.views.launch_reason import NOT_STARTED_WORDS
from sgpu_decl.views.plan_words import environment_words
from sgpu_decl.views.progress_text import event_line

RUNNING = AttemptState.RUNNING
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
Golden = Callable[[str, str], None]


INPUTS = LaunchInputs(spec=NO_FIELDS, fingerprint="f")


def run(name: str, action: Action, reason: Reason, **other: object) -> Change:
    return Change(
        address=Address.run(name),
        kind=Kind.RUN,
        backend="local",
        action=action,
        reason=reason,
        **other,  # type: ignore[arg-type]
    )


def a_plan(*changes: Change, checks: tuple[Diagnostic, ...] = (), **other: object) -> Plan:
    counts = {str(action): sum(change.action is action for change in changes) for action in Action}
    settings: dict[str, object] = {
        "tool_version": "0.1.0",
        "target": None,
        "project": "/p",
        "destroy": False,
        "lineage": "l",
        "serial": 1,
        "created_at": NOW,
        "config_digest": "sha256:0",
        "complete": True,
        "applyable": True,
        "estimate": Estimate(),
        **other,
    }
    return Plan(changes=changes, checks=checks, summary=Summary(**counts), **settings)  # type: ignore[arg-type]


def prior(state: AttemptState = AttemptState.SUCCEEDED, number: int = 7) -> Prior:
    ended = None if state.active else NOW - timedelta(days=3)
    return Prior(attempt=number, state=state, ended_at=ended)


def changed(
    path: str, before: object, after: object, line: int, effect: FieldEffect
) -> FieldChange:
    return FieldChange(
        path=path,
        before=before,  # type: ignore[arg-type]
        after=after,  # type: ignore[arg-type]
        effect=effect,
        origin=Place("run.yaml", line, 3),
        added=before is None,
    )


def launch(**other: object) -> PlannedLaunch:
    return PlannedLaunch(owner="run.yaml", inputs=INPUTS, token="t", **other)  # type: ignore[arg-type]


FIRST = run(
    "first",
    Action.CREATE,
    Reason.FIRST_RUN,
    attempt=1,
    fields=(
        changed("args.epochs", None, 5, 4, FieldEffect.NEW_ATTEMPT),
        changed("entrypoint", None, "train.py:main", 3, FieldEffect.NEW_ATTEMPT),
        changed(
            "env.secrets.HF_TOKEN", None, {"secret": "env:HF_TOKEN"}, 5, FieldEffect.NEW_ATTEMPT
        ),
        changed("gpus", None, 4, 1, FieldEffect.NEW_ATTEMPT),
        changed("type", None, "A10", 2, FieldEffect.NEW_ATTEMPT),
    ),
    code=CodeChange(digest="sha256:c", files=12, bytes=34_512),
    launch=launch(),
)
AGAIN = run(
    "train",
    Action.CREATE,
    Reason.CONFIG_CHANGED,
    attempt=8,
    prior=prior(),
    unchanged=3,
    fields=(
        changed("args.n", 1, 2, 12, FieldEffect.NEW_ATTEMPT),
        changed("env.variables.LR", None, "1e-4", 13, FieldEffect.NEW_ATTEMPT),
        changed("timeout", "6h", "8h", 14, FieldEffect.NEXT_ATTEMPT),
    ),
    code=CodeChange(
        digest="sha256:d", files=1, bytes=120, changed=tuple(f"part{n}.py" for n in range(7))
    ),
    launch=launch(),
)
REPLACED = run(
    "big",
    Action.REPLACE,
    Reason.CONFIG_CHANGED,
    attempt=3,
    destructive=True,
    prior=prior(AttemptState.RUNNING, 2),
    fields=(changed("gpus", 8, 16, 2, FieldEffect.NEW_ATTEMPT),),
    launch=launch(stop=(2,)),
)
LOST = Diagnostic(
    code="work_lost",
    severity=Severity.WARNING,
    address=str(Address.run("big")),
    summary="`big#2` has been running for 2 h on 8 GPUs: 16.0 GPU hours so far",
)
OUTSIDE = Diagnostic(
    code="outside_root",
    severity=Severity.WARNING,
    address=str(Address.run("train")),
    summary="`../x.py` lies outside the code root",
    hint="move it inside",
    place=Place("run.yaml", 3, 13),
)
EVERYTHING = a_plan(
    run(
        "adopted",
        Action.ADOPT,
        Reason.ALREADY_RUNNING,
        attempt=2,
        prior=prior(RUNNING, 2),
    ),
    REPLACED,
    run("cancelled", Action.NO_OP, Reason.CANCELLED_BY_USER, prior=prior(AttemptState.CANCELLED)),
    run("failed", Action.NO_OP, Reason.FAILED_NOT_RETRIED, prior=prior(AttemptState.FAILED)),
    FIRST,
    run(
        "limits",
        Action.UPDATE,
        Reason.CONFIG_CHANGED,
        prior=prior(),
        unchanged=4,
        fields=(changed("retry.max", None, 2, 20, FieldEffect.NEXT_ATTEMPT),),
        launch=PlannedLaunch(owner="run.yaml", inputs=INPUTS),
    ),
    run("old", Action.FORGET, Reason.REMOVED_FROM_CONFIG, prior=prior()),
    run(
        "queued",
        Action.CREATE,
        Reason.CODE_CHANGED,
        attempt=3,
        prior=prior(RUNNING, 2),
        launch=launch(wait_for=(2,)),
    ),
    run(
        "stopped",
        Action.DESTROY,
        Reason.REMOVED_FROM_CONFIG,
        destructive=True,
        prior=prior(RUNNING, 1),
        launch=launch(stop=(1,)),
    ),
    AGAIN,
    run("unchanged", Action.NO_OP, Reason.UP_TO_DATE, prior=prior()),
    checks=(OUTSIDE, LOST),
    estimate=Estimate(gpu_hours_worst=144.0),
)
NOTHING = a_plan(
    *(run(f"r{n:02}", Action.NO_OP, Reason.UP_TO_DATE, prior=prior()) for n in range(12)),
    applyable=False,
)
REFUSED = a_plan(
    run("train", Action.REPLACE, Reason.CONFIG_CHANGED, attempt=8, prior=prior(RUNNING)),
    checks=(
        Diagnostic(
            code="active_run",
            severity=Severity.ERROR,
            address=str(Address.run("train")),
            summary="`train#7` is active, and `on_active` is `error`",
            hint="wait for it or cancel it",
        ),
    ),
    applyable=False,
    complete=False,
)
ENDING = a_plan(
    run(
        "old",
        Action.DESTROY,
        Reason.REMOVED_FROM_CONFIG,
        prior=prior(),
        launch=PlannedLaunch(owner="run.yaml", inputs=INPUTS),
    ),
    run(
        "train",
        Action.DESTROY,
        Reason.REMOVED_FROM_CONFIG,
        destructive=True,
        prior=prior(RUNNING),
        launch=PlannedLaunch(owner="run.yaml", inputs=INPUTS, stop=(5, 7)),
    ),
    destroy=True,
)
PLANS = {
    "everything": EVERYTHING,
    "nothing": NOTHING,
    "refused": REFUSED,
    "empty": a_plan(),
    "destroy": ENDING,
}


@pytest.mark.parametrize("name", PLANS)
def test_the_text_is_as_drawn(name: str, golden: Golden) -> None:
    golden(f"plan_{name}.txt", plan_text.render(PLANS[name], now=NOW))


@pytest.mark.parametrize("name", PLANS)
def test_the_markdown_is_as_drawn(name: str, golden: Golden) -> None:
    golden(f"plan_{name}.md", markdown(PLANS[name]))


def test_colour_adds_nothing_but_colour(golden: Golden) -> None:
    coloured = plan_text.render(EVERYTHING, now=NOW, colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9]+m", "", coloured) == plan_text.render(EVERYTHING, now=NOW)


@pytest.mark.parametrize("name", PLANS)
def test_the_count_stands_once_whatever_it_is_written_to(name: str) -> None:
    for width in (None, 80):
        lines = plan_text.render(PLANS[name], now=NOW, width=width).splitlines()
        counts = [line for line in lines if line.startswith(("Plan: ", "No changes."))]
        assert counts == [lines[0] if lines[0].startswith("No changes.") else lines[-1]]


def test_every_change_says_why() -> None:
    text = plan_text.render(EVERYTHING, now=NOW)
    changes = [c for c in EVERYTHING.changes if c.action is not Action.NO_OP]
    assert text.count("because: ") == len(changes)


def test_a_first_run_after_a_destroy_says_so() -> None:
    again = replace(FIRST, attempt=8, prior=prior())
    text = plan_text.render(a_plan(again), now=NOW)
    assert (
        "because: first run since it was destroyed or forgotten (first#7 succeeded 3 d ago)" in text
    )
    # All is new: laid out as every first run is.
    assert "args.epochs: 5, entrypoint:" in text


@pytest.mark.parametrize("failure", sorted(NOT_STARTED))
def test_an_attempt_whose_ranks_did_not_run_could_not_start(failure: FailureClass) -> None:
    before = replace(prior(AttemptState.FAILED), failure=failure)
    said = f"train#7 could not start 3 d ago: {NOT_STARTED_WORDS[failure]}"
    for reason, because in {
        Reason.PREVIOUS_FAILED: f"because: {said}\n",
        Reason.CONFIG_CHANGED: f"because: the config changed ({said})\n",
    }.items():
        again = replace(AGAIN, reason=reason, prior=before)
        assert because in plan_text.render(a_plan(again), now=NOW)
    kept = run("train", Action.NO_OP, Reason.FAILED_NOT_RETRIED, prior=before)
    assert f"launches it again ({said})" in plan_text.render(a_plan(kept), now=NOW)


def test_a_run_that_another_file_declares_now_says_which() -> None:
    moved = run(
        "train",
        Action.UPDATE,
        Reason.CONFIG_CHANGED,
        prior=prior(),
        launch=PlannedLaunch(owner="new.yaml", inputs=INPUTS),
    )
    assert "because: `new.yaml` declares it now (train#7 succ" in plan_text.render(
        a_plan(moved), now=NOW
    )


def test_many_unchanged_runs_are_folded() -> None:
    text = plan_text.render(NOTHING, now=NOW)
    assert "(2 more unchanged runs)" in text
    assert "run.r11" not in text


EVIL = "\x1b[2J\u202egnp\u200b\n| `x` </details> @all\x9b"


def markdown(plan: Plan, limit: int = 0) -> str:
    return "".join(plan_markdown.render(plan, now=NOW, limit=limit))


def hostile() -> Plan:
    change = run(
        "x",
        Action.CREATE,
        Reason.CONFIG_CHANGED,
        attempt=2,
        prior=prior(),
        fields=(
            changed(f'args."{EVIL}"', EVIL, [EVIL], 1, FieldEffect.NEW_ATTEMPT),
            FieldChange(
                path="env.secrets.A",
                before={"secret": EVIL},
                after=None,
                effect=FieldEffect.NEW_ATTEMPT,
                origin=Place(EVIL, 1, 1),
                removed=True,
            ),
        ),
        code=CodeChange(digest="d", files=1, bytes=1, changed=(EVIL,)),
        launch=launch(),
    )
    check = Diagnostic(
        code="c", severity=Severity.ERROR, address=None, summary=EVIL, hint=EVIL, place=None
    )
    return a_plan(change, checks=(check,))


def test_a_users_text_cannot_move_the_cursor_or_hide() -> None:
    for text in (plan_text.render(hostile(), now=NOW), markdown(hostile())):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e]", text)


def test_long_values_are_cut_to_the_width() -> None:
    change = run(
        "x",
        Action.CREATE,
        Reason.CONFIG_CHANGED,
        attempt=2,
        prior=prior(),
        fields=(changed("command", "a" * 5000, "b" * 5000, 1, FieldEffect.NEW_ATTEMPT),),
        launch=launch(),
    )
    assert max(map(len, plan_text.render(a_plan(change), now=NOW, width=80).splitlines())) <= 100


def lines_of(before: object, after: object, width: int = 100, **sides: Any) -> list[str]:
    """The lines of a plan that tell of one changed field."""
    field = replace(changed("command", before, after, 1, FieldEffect.NEW_ATTEMPT), **sides)
    change = replace(AGAIN, fields=(field,), code=None, unchanged=0)
    text = plan_text.render(a_plan(change), now=NOW, width=width)
    return text.split("because: ")[1].split("\n\n")[0].splitlines()[1:]


def test_long_values_are_cut_around_the_first_difference() -> None:
    same = "python train.py --data /some/long/path/to/data "
    (line,) = lines_of(same + "--lr 0.1 " + "x" * 200, same + "--lr 0.2 " + "x" * 200)
    old, new = line.split("run.yaml")[0].split(" -> ")
    assert "--lr 0.1" in old
    assert "--lr 0.2" in new
    assert old.split()[1].startswith("…")
    assert old.endswith("…")


def test_of_lists_the_elements_that_differ_are_shown() -> None:
    assert lines_of(["bash", "-c", "a" * 80, "b"], ["bash", "-c", "a" * 80, "c"]) == [
        "      command  -1 +1 elements  run.yaml:1:3",
        "        - b",
        "        + c",
    ]


def test_of_a_text_of_several_lines_those_that_differ_are_shown() -> None:
    old = "set -x\necho starting the training run\nmake\nmake data\nexit\n"
    new = "set -x\necho starting the training now\nmake\nexit\n"
    assert lines_of(old, new) == [
        "      command  -2 +1 lines  run.yaml:1:3",
        "        - echo starting the training run",
        "        + echo starting the training now",
        "        - make data",
    ]
    fields = (changed("command", old, new, 1, FieldEffect.NEW_ATTEMPT),)
    assert (
        "| `echo starting the training run`<br>`make data` | `echo starting the training now`"
    ) in markdown(a_plan(replace(AGAIN, fields=fields)))


def test_a_line_that_ends_differently_is_shown_so_that_it_can_be_seen() -> None:
    assert lines_of("a\nb ", "a\nb\n")[1:] == ['        - "b "', "        + b", '        + ""']


def test_a_long_line_of_several_is_cut_around_the_difference() -> None:
    _, old, new = lines_of("a\n" + "x" * 500 + "1", "a\n" + "x" * 500 + "2", width=80)
    assert old.startswith("        - …x")
    assert old.endswith("x1")
    assert new.endswith("x2")


def test_many_changed_lines_are_folded() -> None:
    shown = lines_of("\n".join(map(str, range(4000))), "\n".join(map(str, range(1, 8001, 2))))
    assert len(shown) <= 16
    assert shown[-1].endswith("more changed lines)")


def test_null_and_nothing_are_told_apart() -> None:
    assert "null -> (none)" in lines_of(None, None, added=False, removed=True)[0]
    assert "(none) -> null" in lines_of(None, None)[0]
    assert "1 -> null" in lines_of(1, None)[0]


def test_several_attempts_that_are_waited_for_have_ended() -> None:
    queued = replace(AGAIN, launch=launch(wait_for=(6, 7)))
    assert "create train#8 after train#6, train#7 have ended" in plan_text.render(
        a_plan(queued), now=NOW
    )
    done = ApplyEvent(
        step=Step.LAUNCHED, address=AGAIN.address, attempt=AttemptRef(AGAIN.address, 8)
    )
    waited = tuple(AttemptRef(AGAIN.address, number) for number in (6, 7))
    event = replace(done, waits_for=waited)
    assert event_line(event) == ("train#8 queued: it starts when train#6, train#7 have ended")
    upstreams = [AttemptRef(AGAIN.address, number) for number in range(1, 7)]
    assert event_line(done, after=upstreams[:1]) == (
        "train#8 queued: it starts when train#1 has succeeded"
    )
    assert str(event_line(event, after=upstreams)).endswith(
        "train#7 have ended and train#1, train#2, train#3, train#4, 2 more have succeeded"
    )


def test_a_limit_is_not_put_off_where_the_next_attempt_is_the_one_that_is_created() -> None:
    for change in (AGAIN, replace(AGAIN, action=Action.REPLACE)):
        assert "next attempt" not in plan_text.render(a_plan(change), now=NOW)
        assert "next attempt" not in markdown(a_plan(change))
    kept = replace(AGAIN, action=Action.UPDATE)
    assert "from the next attempt on" in plan_text.render(a_plan(kept), now=NOW)
    assert "from the next attempt on" in markdown(a_plan(kept))


def test_an_environment_of_the_same_packages_with_other_files_is_told_so() -> None:
    change = EnvironmentChange(digest="sha256:0", packages=(), bytes=100, bytes_to_stage=10)
    assert environment_words(change, whole=False) == (
        "the same packages with other files, 10 B to stage (90 B already there)"
    )


def test_a_long_hint_of_a_check_goes_on_in_the_next_line_of_a_terminal() -> None:
    hint = "use `type: CPU` here (`--set type=CPU`), or a target with another backend than this"
    check = Diagnostic(code="no_gpu", summary="no GPU", hint=hint, severity=Severity.WARNING)
    plan = replace(EVERYTHING, checks=(check,))
    assert f"  hint: {hint}\n" in plan_text.render(plan, now=NOW)
    lines = plan_text.render(plan, now=NOW, width=60).splitlines()
    at = lines.index("  hint: use `type: CPU` here (`--set type=CPU`), or a target")
    assert lines[at + 1] == "        with another backend than this"
    assert "\x1b[33mwarning[no_gpu]\x1b[0m: no GPU" in plan_text.render(
        plan, now=NOW, colour=True, width=60
    )
