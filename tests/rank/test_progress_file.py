"""What a rank says of its progress never harms it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sgpu_decl.rank import progress_file
from sgpu_decl.rank.progress_file import follow_mlflow, write_progress


@pytest.fixture(autouse=True)
def _a_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    monkeypatch.setattr(progress_file, "_written", {})
    monkeypatch.setattr(progress_file, "_noted", {})


def told(tmp_path: Path) -> dict[str, Any]:
    return dict(json.loads((tmp_path / "progress.json").read_text()))


def test_of_many_metrics_a_few_are_kept_and_losses_first(tmp_path: Path) -> None:
    write_progress(3, 10, {**{f"m{number}": number for number in range(5000)}, "val/loss": 0.5})
    kept = told(tmp_path)["metrics"]
    assert len(kept) == 20
    assert kept["val/loss"] == 0.5


@pytest.mark.parametrize("metrics", [{"loss": object()}, {"loss": "low"}, {}])
def test_a_value_that_is_no_number_raises_nothing(metrics: dict[str, object]) -> None:
    write_progress(1, None, metrics)


@pytest.mark.parametrize("metrics", [None, 5, [object()], "text", [SimpleNamespace(key=3, step=1)]])
def test_what_is_wrong_with_metrics_is_left_to_mlflow(metrics: object) -> None:
    seen: list[object] = []

    class MlflowClient:
        def log_metric(self, *given: object) -> None:
            seen.append(given)

        def log_batch(self, run_id: str, metrics: object = ()) -> None:
            seen.append(metrics)

    follow_mlflow(SimpleNamespace(MlflowClient=MlflowClient))  # type: ignore[arg-type]
    MlflowClient().log_batch("run", metrics)
    MlflowClient().log_metric("run", 7, "text")
    assert seen == [metrics, ("run", 7, "text", None, None)]
