"""What each attempt of a run has changed against the one before."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.attempt_view import AttemptView, RunHistory
from sgpu_decl.model.jsonable import NO_FIELDS, Spec
from sgpu_decl.model.launch import LaunchInputs, Provenance
from sgpu_decl.model.state import Attempt
from sgpu_decl.views.launch_reason import ALWAYS, changed_words, changes_of, launch_reason
from sgpu_decl.views.run_markdown import render
from sgpu_decl.views.status_json import run_object
from sgpu_decl.views.status_text import run_details

NOW = datetime(2026, 11, 23, tzinfo=UTC)
TOLD: list[tuple[dict[str, object], str | None]] = [
    ({"gpus": 1, "args": {"n": 1}}, "sha256:a"),
    ({"gpus": 1, "args": {"n": 2}}, "sha256:b"),
    ({"gpus": 1, "args": {"n": 2}}, "sha256:b"),
    ({"gpus": 2, "args": {"n": 2}, "retry": {"max": 1}}, None),
]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
WHY = (
    Provenance(),  # launched by an older sgpu
    Provenance(reason="config_changed", commit=COMMIT, dirty=False),
    Provenance(reason="requested_rerun", commit=COMMIT, dirty=True),
    Provenance(reason="first_run"),  # after a destroy
)


def attempt(number: int, spec: dict[str, object], code: str | None) -> Attempt:
    return Attempt(
        ref=AttemptRef(Address.run("train"), number),
        token="t",
        backend="local",
        inputs=LaunchInputs(spec=Spec.of(json.loads(json.dumps(spec))), fingerprint="f",
                            code_digest=code),
        state=AttemptState.SUCCEEDED,
        created_at=NOW,
        provenance=WHY[number - 1],
    )  # fmt: skip


ATTEMPTS = [attempt(number, *told) for number, told in enumerate(TOLD, start=1)]
RUN = RunHistory(
    view=AttemptView(ref=ATTEMPTS[-1].ref, backend="local", state=AttemptState.SUCCEEDED),
    spec=NO_FIELDS,
    attempts=tuple(
        (
            item,
            AttemptView(
                ref=item.ref,
                backend="local",
                state=AttemptState.SUCCEEDED,
                started_at=NOW - timedelta(seconds=150),
                ended_at=NOW - timedelta(seconds=60),
                restart=2 if item.ref.number == 3 else 0,
            ),
        )
        for item in ATTEMPTS
    ),
)


def test_fields_and_content_that_differ_are_named() -> None:
    assert changes_of(ATTEMPTS) == [
        (),
        ("args.n", "code"),
        (),
        ("gpus", "retry.max", "code"),
    ]
    assert changes_of(ATTEMPTS[:1]) == [()]
    assert changed_words([f"a.{n}" for n in range(7)]) == "a.0, a.1, a.2, a.3, a.4 and 2 more"


def test_every_view_has_reasons_commits_durations_restarts_and_changes() -> None:
    assert run_details(RUN, now=NOW, colour=False).endswith(
        "history:\n"
        "  #1 succeeded, 1 m ago, took 1 m 30 s\n"
        "  #2 succeeded, 1 m ago, took 1 m 30 s; reason: the config changed; changed: args.n, "
        "code; commit: 0123456789ab\n"
        "  #3 succeeded, 1 m ago, took 1 m 30 s, 2 restarts; reason: a rerun was requested; "
        "commit: 0123456789ab and local changes\n"
        "  #4 succeeded, 1 m ago, took 1 m 30 s; "
        "reason: first run since it was destroyed or forgotten; changed: gpus, retry.max, code"
    )
    line = "| 2 | succeeded |  |  | 1 m ago | 1 m 30 s | the config changed | args.n, code | "
    assert f"\n{line}{COMMIT[:12]} |\n" in render(RUN, now=NOW)
    history = run_object(RUN)["history"]
    assert isinstance(history, list)
    assert [item["changed"] for item in history] == [list(one) for one in changes_of(ATTEMPTS)]
    assert [(item["reason"], item["commit"], item["dirty"]) for item in history] == [
        (why.reason, why.commit, why.dirty) for why in WHY
    ]


def test_the_reason_is_that_of_the_plan_and_a_first_run_is_no_rerun() -> None:
    always = attempt(1, {"gpus": 1, "until": "always"}, None)
    rerun = replace(ATTEMPTS[0], provenance=WHY[2])
    newer = replace(ATTEMPTS[0], provenance=Provenance(reason="the_moon"))
    assert launch_reason(replace(always, provenance=WHY[2]), "run.yaml", ATTEMPTS[0]) == ALWAYS
    assert launch_reason(rerun, "run.yaml", None) == "first run"
    assert launch_reason(newer, "run.yaml", ATTEMPTS[0]) == "the_moon"
    assert launch_reason(ATTEMPTS[0], "run.yaml", None) == ""


def test_an_attempt_before_that_could_not_start_did_not_fail() -> None:
    again = replace(ATTEMPTS[1], provenance=Provenance(reason="previous_failed"))
    held = replace(ATTEMPTS[0], failure=FailureClass.CAPACITY)
    failed = replace(ATTEMPTS[0], failure=FailureClass.NODE_LOST)
    assert launch_reason(again, "run.yaml", held) == "the last attempt could not start"
    assert launch_reason(again, "run.yaml", failed) == "the last attempt failed"
