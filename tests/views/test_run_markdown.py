import re
from collections.abc import Callable
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.model.jsonable import Json
from sgpu_decl.views.markdown import code, fenced, link, prose
from sgpu_decl.views.run_markdown import render

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
FAILED: dict[str, Json] = {
    "address": 'run.sweep["lr=0.1"]',
    "name": 'sweep["lr=0.1"]',
    "attempt": 8,
    "state": "failed",
    "backend": "local",
    "started_at": "2026-01-02T11:00:00Z",
    "ended_at": "2026-01-02T11:00:03Z",
    "exit_code": 1,
    "ranks": [
        {"rank": 0, "node_rank": 0, "state": "failed", "exit_code": 1, "signal": None},
        {"rank": 1, "node_rank": 0, "state": "stopped", "exit_code": None, "signal": "SIGTERM"},
    ],
    "first_cause": {
        "rank": 0,
        "class": "exception",
        "summary": "ValueError: a | b ` c",
        "traceback": "Traceback:\n  \x1b[31mx\x1b[0m = ```\nValueError: no\x1b[2J\n",
        "simultaneous": [1],
    },
    "links": {
        "folder": "/p/.sgpu/default/runs/sweep/8",
        "mlflow": {
            "run_id": "0a1b",
            "tracking_uri": "https://mlflow.example/",
            "env": {"MLFLOW_RUN_ID": "0a1b"},
        },
    },
    "spec": {"args": {"lr": 0.1}, "gpus": 2},
    "history": [
        {"attempt": 7, "state": "succeeded", "ended_at": "2026-01-01T11:00:00Z", "class": None},
        {"attempt": 8, "state": "failed", "ended_at": "2026-01-02T11:00:03Z", "class": "exception"},
    ],
}


def test_a_failed_run(golden: Callable[[str, str], None]) -> None:
    golden("run_failed.md", render(FAILED, now=NOW))


def test_a_run_that_is_queued_has_only_what_there_is() -> None:
    queued: dict[str, Json] = {
        **FAILED, "state": "queued", "started_at": None, "ended_at": None, "exit_code": None,
        "ranks": [], "first_cause": None, "links": {}, "history": [],
    }  # fmt: skip
    text = render(queued, now=NOW)
    assert text.startswith('### `sweep["lr=0.1"]#8` queued\n\nNot started yet, on')
    for absent in ("First cause", "| rank |", "- ", "attempts"):
        assert absent not in text


def test_many_ranks_are_folded() -> None:
    ranks: Json = [
        {"rank": rank, "node_rank": 0, "state": "running", "exit_code": None, "signal": None}
        for rank in range(512)
    ]
    text = render({**FAILED, "ranks": ranks}, now=NOW)
    assert "<details><summary>512 ranks</summary>\n\n| rank |" in text


@given(st.text())
def test_nothing_breaks_out_of_a_span_or_a_block(text: str) -> None:
    span = code(text)
    fence = re.match("`+", span)
    assert fence is not None
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
