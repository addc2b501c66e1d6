"""MLflow is never silently absent: what `plan` says where it is not installed."""

import sys
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.support import require

RUN = "name: hello\ngpus: 1\ntype: CPU\ncommand: [echo, hello]\n"


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)


def checks(shell: Shell, text: str, name: str = "run.yaml") -> list[dict[str, Any]]:
    shell.write(name, text)
    found = shell.here("plan", name, "-o", "json").json["data"]["checks"]
    words = ("mlflow", "psutil", "tracking")
    return [item for item in found if any(word in item["id"] for word in words)]


@pytest.mark.usefixtures("without")
def test_tracking_that_was_asked_for_and_cannot_be_is_an_error(sgpu: Shell) -> None:
    (found,) = checks(sgpu, RUN + "mlflow: {enabled: true}\n")
    assert found["severity"] == "error"
    assert found["place"]["line"] == 5
    assert "install 'mlflow>=3.1,<4' 'psutil" in found["hint"]
    assert sgpu.here("apply", "-y").code == 1


@pytest.mark.usefixtures("without")
def test_tracking_by_default_that_cannot_be_is_one_line_for_all_runs(sgpu: Shell) -> None:
    run = "{gpus: 1, type: CPU, command: 'true'}"
    (found,) = checks(sgpu, f"project: {{name: p}}\nruns: {{a: {run}, b: {run}}}\n", "sgpu.yml")
    assert found["severity"] == "info"
    assert found["summary"].startswith("runs are not tracked: MLflow is not installed")
    assert sgpu.here("plan", "sgpu.yml").code == 0


@pytest.mark.usefixtures("without")
def test_a_field_of_tracking_that_has_no_effect_is_a_warning(sgpu: Shell) -> None:
    (found,) = checks(sgpu, RUN + "mlflow: {experiment: vision}\n")
    assert (found["severity"], found["place"]["line"]) == ("warning", 5)
    assert "`mlflow.experiment` has no effect" in found["summary"]


@pytest.mark.usefixtures("without")
def test_a_project_is_told_once_that_mlflow_is_missing(sgpu: Shell) -> None:
    start = "{gpus: 1, type: CPU, command: 'true', mlflow: {experiment: "
    runs = ", ".join(f"{name}: {start}{name}}}}}" for name in "abc")
    (found,) = checks(sgpu, f"project: {{name: p}}\nruns: {{{runs}}}\n", "sgpu.yml")
    assert found["severity"] == "warning"
    asked = runs.replace("experiment: b", "enabled: true")
    both = checks(sgpu, f"project: {{name: p}}\nruns: {{{asked}}}\n", "sgpu.yml")
    assert sorted(item["severity"] for item in both) == ["error", "warning"]


@pytest.mark.usefixtures("without")
def test_a_run_that_turns_tracking_off_needs_no_mlflow(sgpu: Shell) -> None:
    assert checks(sgpu, RUN + "mlflow: {enabled: false}\n") == []


def test_an_experiment_that_is_said_twice_is_an_error(sgpu: Shell) -> None:
    require("mlflow")
    text = RUN + "mlflow: {experiment: a}\nenv: {variables: {MLFLOW_EXPERIMENT_NAME: b}}\n"
    (found,) = checks(sgpu, text)
    assert (found["severity"], found["id"]) == ("error", "mlflow_said_twice")


def test_a_malformed_uri_is_an_error_before_anything_starts(sgpu: Shell) -> None:
    require("mlflow")
    malformed = RUN + 'mlflow: {tracking_uri: "http://[server"'
    (found,) = checks(sgpu, malformed + "}\n")
    assert (found["severity"], found["id"]) == ("error", "bad_tracking_uri")
    assert checks(sgpu, malformed + ", enabled: false}\n") == []


def test_system_metrics_without_psutil_are_a_warning(
    sgpu: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("mlflow")
    monkeypatch.setitem(sys.modules, "psutil", None)
    (found,) = checks(sgpu, RUN + "mlflow: {system_metrics: true}\n")
    assert (found["severity"], found["id"]) == ("warning", "psutil_missing")
