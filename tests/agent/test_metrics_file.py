"""What a file of metrics says, however it was written."""

import math
from pathlib import Path

import pytest

from sgpu_decl.agent.attempt.metrics_file import METRICS, read_metrics


@pytest.mark.parametrize(
    ("text", "last", "problem"),
    [
        ('{"loss": 1, "name": "x", "ok": true, "eval": {"acc": 0.5}}', {"loss": 1, "eval/acc": 0.5},
         None),
        ('{"step": 2, "a": 2}\n{"step": 1, "a": 1, "b": 1}\n', {"a": 2, "b": 1}, None),
        ('{"a": 1}\n\n{"a": 2}', {"a": 2}, None),
        ('[{"step": 1, "a": 1}, {"step": 1, "a": 3}]', {"a": 3}, None),
        ('{"a": 1}\n{"a": 2', {"a": 1}, "line 2 of `metrics.json` is no JSON"),
        ('{"step": NaN, "a": 1}', {"a": 1}, None),
        (f'{{"a": 1{"0" * 400}}}', {"a": math.inf}, None),
        ("{}", {}, "the content of `metrics.json` is no object with numbers"),
        ("5", {}, "the content of `metrics.json` is no object with numbers"),
        ("loss=5", {}, "line 1 of `metrics.json` is no JSON"),
        ("[" * 100_000, {}, "line 1 of `metrics.json` is no JSON"),
        ("", {}, None),
    ],
    ids=range(12),
)  # fmt: skip
def test_what_a_file_says(
    tmp_path: Path, text: str, last: dict[str, float], problem: str | None
) -> None:
    (tmp_path / METRICS).write_text(text)
    series = read_metrics(str(tmp_path))
    assert (series.last(), series.problem) == (last, problem)


def test_a_writer_that_stopped_at_any_byte_breaks_nothing(tmp_path: Path) -> None:
    text = '{"step": 1, "a": 0.5}\n{"step": 2, "a": 0.25}\n'
    for end in range(len(text) + 1):
        (tmp_path / METRICS).write_text(text[:end])
        assert read_metrics(str(tmp_path)).last() in ({}, {"a": 0.5}, {"a": 0.25})


def test_what_is_no_file_or_has_too_many_names(tmp_path: Path) -> None:
    (tmp_path / METRICS).mkdir()
    assert "cannot be read" in str(read_metrics(str(tmp_path)).problem)
    (tmp_path / METRICS).rmdir()
    names = ", ".join(f'"{number}": {number}' for number in range(300))
    (tmp_path / METRICS).write_text(f"{{{names}}}")
    series = read_metrics(str(tmp_path))
    assert len(series.last()) == 200
    assert "more than 200 names" in str(series.problem)
