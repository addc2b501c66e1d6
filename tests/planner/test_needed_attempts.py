"""What active attempts still look at is spared by gc."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.state import Attempt
from sgpu_decl.planner.kept_attempts import GcRule, kept, surplus
from sgpu_decl.planner.needs import needed_by_active

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def attempt(
    name: str,
    number: int,
    state: AttemptState = AttemptState.SUCCEEDED,
    *,
    key: str = "",
    at: int = 0,
    spec: Mapping[str, Json] | None = None,
) -> Attempt:
    return Attempt(
        ref=AttemptRef(Address.run(name, key), number),
        token=f"{name}-{key}-{number}",
        backend="local",
        inputs=LaunchInputs(spec=Spec.of(spec or {}), fingerprint="f", code_digest=None),
        state=state,
        created_at=START + timedelta(seconds=at),
    )


def freed(attempts: Sequence[Attempt]) -> list[str]:
    rule = GcRule(keep_last=0, everything=True)
    stays = kept(attempts, rule, read=(), outputs={})
    return [str(one.ref) for one in surplus(attempts, rule, START) if one.ref not in stays]


def test_an_output_that_an_active_attempt_reads_is_kept() -> None:
    history = [attempt("train", 7, at=1), attempt("train", 8, at=2)]
    reads: dict[str, Json] = {"args": {"w": "${run.train#7.output}"}}
    running = attempt("evaluate", 3, AttemptState.RUNNING, at=3, spec=reads)
    assert freed([*history, running]) == ["train#8"]
    ended = attempt("evaluate", 3, at=3, spec=reads)
    assert freed([*history, ended]) == ["evaluate#3", "train#7", "train#8"]


def test_what_a_queued_attempt_comes_after_is_kept() -> None:
    history = [
        attempt("train", 1, key="n=1", at=1),
        attempt("train", 2, key="n=1", at=2),
        attempt("train", 1, AttemptState.RUNNING, key="n=2", at=2),
        attempt("train", 3, key="n=1", at=9),
        attempt("other", 1, at=1),
    ]
    queued = attempt("evaluate", 3, AttemptState.QUEUED, at=2, spec={"after": ["train"]})
    assert freed([*history, queued]) == ["other#1", 'train["n=1"]#1', 'train["n=1"]#3']
    assert {str(one): str(by) for one, by in needed_by_active([*history, queued]).items()} == {
        'train["n=1"]#2': "evaluate#3",
        'train["n=2"]#1': "evaluate#3",
    }
