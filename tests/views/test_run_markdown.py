import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.attempt_details import FirstCause
from sgpu_decl.model.attempt_view import AttemptView, RankView, RunHistory
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.views.markdown import code, fenced, link, prose
from sgpu_decl.views.run_markdown import render
from tests.storing.conftest import make_launch
from tests.support import some

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
ADDRESS = Address.parse('run.sweep["lr=0.1"]')
FAILED = AttemptView(
    ref=AttemptRef(ADDRESS, 8),
    backend="local",
    state=AttemptState.FAILED,
    started_at=datetime(2026, 1, 2, 11, 0, 0, tzinfo=UTC),
    ended_at=datetime(2026, 1, 2, 11, 0, 3, tzinfo=UTC),
    exit_code=1,
    failure=FailureClass.EXCEPTION,
    ranks=(
        RankView(rank=0, node_rank=0, state="failed", exit_code=1),
        RankView(rank=1, node_rank=0, state="stopped", signal="SIGTERM"),
    ),
    first_cause=FirstCause(
        rank=0,
        failure="exception",
        summary="ValueError: a | b ` c",
        traceback="Traceback:\n  \x1b[31mx\x1b[0m = ```\nValueError: no\x1b[2J\n",
        simultaneous=(1,),
    ),
    links={
        "folder": "/p/.sgpu/default/runs/sweep/8",
        "mlflow": {
            "run_id": "0a1b",
            "tracking_uri": "https://mlflow.example/",
            "env": {"MLFLOW_RUN_ID": "0a1b"},
        },
    },
)
SUCCEEDED = AttemptView(
    ref=AttemptRef(ADDRESS, 7),
    backend="local",
    state=AttemptState.SUCCEEDED,
    ended_at=datetime(2026, 1, 1, 11, 0, 0, tzinfo=UTC),
)


def shown(view: AttemptView, *views: AttemptView) -> str:
    """A run as Markdown whose history are the `views`."""
    attempts = tuple((make_launch("sweep", past.ref.number).attempt, past) for past in views)
    spec = Spec('{"args":{"lr":0.1},"gpus":2}')
    return render(RunHistory(view=view, spec=spec, attempts=attempts), now=NOW)


def test_a_failed_run(golden: Callable[[str, str], None]) -> None:
    golden("run_failed.md", shown(FAILED, SUCCEEDED, FAILED))


def test_a_run_that_is_queued_has_only_what_there_is() -> None:
    text = shown(AttemptView(ref=FAILED.ref, backend="local", state=AttemptState.QUEUED))
    assert text.startswith('### `sweep["lr=0.1"]#8` queued\n\nNot started yet, on')
    for absent in ("First cause", "| rank |", "- ", "attempts"):
        assert absent not in text


def test_many_ranks_are_folded() -> None:
    ranks = tuple(RankView(rank=rank, node_rank=0, state="running") for rank in range(512))
    text = shown(replace(FAILED, ranks=ranks))
    assert "<details><summary>512 ranks</summary>\n\n| rank |" in text


@given(st.text())
def test_nothing_breaks_out_of_a_span_or_a_block(text: str) -> None:
    span = code(text)
    fence = some(re.match("`+", span))
    assert "\n" not in span
    assert not re.search(f"(?<!`){fence[0]}(?!`)", span[len(fence[0]) : -len(fence[0])])
    first, *middle, last = fenced(text).split("\n")
    assert first == f"{last}text"
    assert not any(line.strip().startswith(last) for line in middle)
    assert "<" not in prose(text.replace("`", ""))


def test_only_addresses_of_the_web_are_links() -> None:
    assert link("https://a.example/x?y=1") == "<https://a.example/x?y=1>"
    assert link("https://a.example/ b") == "`https://a.example/ b`"
    assert link("sqlite:////p/mlflow.db") == "`sqlite:////p/mlflow.db`"
