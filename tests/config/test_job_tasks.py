"""Jobs of several tasks: what they may say, and what is wrong with one is told at its place."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.config.conftest import including, outcome

RUNS = "runs:\n  train: {gpus: 1, type: A10, entrypoint: train.py, backend: databricks}\n"
WHOLE = (
    RUNS
    + """\
run_as: {user: ops@example.com}
jobs:
  nightly:
    schedule: "0 0 2 * * ?"
    run_as: {service_principal: 1f3e}
    parameters: {day: "2026-11-01", shards: 8}
    tasks:
      prepare: {python: prepare.py, args: [--day, "${job.parameters.day}", --n, 3]}
      check: {task: {condition_task: {op: EQUAL_TO, left: "{{job.parameters.shards}}", right: "8"}}}
      train: {run: train, after: [prepare, check.true]}
      report: {notebook: ./report.ipynb, after: [train], if: all_done}
      publish: {task: {sql_task: {warehouse_id: w, file: {path: /x}}}, after: [report]}
    max_concurrent_runs: 1
    queue: true
    health: {longer_than: 3h}
    notify: {failure: [ml@example.com, {webhook: ID}]}
"""
)


def tasks(*lines: str, more: str = "") -> str:
    body = "".join(f"      {line}\n" for line in lines)
    return f"{RUNS}jobs:\n  j:\n{more}    tasks:\n{body}"


def test_a_job_has_tasks_of_every_kind(good: Callable[..., Any]) -> None:
    (job,) = good(WHOLE, "sgpu.yml").jobs
    config = job.config
    assert {name: task.kind for name, task in config.tasks.items()} == {
        "prepare": "python", "check": "task", "train": "run", "report": "notebook",
        "publish": "task",
    }  # fmt: skip
    assert config.tasks["prepare"].args == ("--day", "${job.parameters.day}", "--n", "3")
    assert config.tasks["report"].notebook.file == "report.ipynb"
    assert (config.tasks["report"].run_if, config.tasks["train"].run_if) == (
        "all_done", "all_success",
    )  # fmt: skip
    assert config.parameters == {"day": "2026-11-01", "shards": "8"}
    assert (config.queues, config.launched_runs) == (True, ("train",))
    assert config.run_as.service_principal == "1f3e"


def test_a_task_says_the_same_in_any_order_of_keys(good: Callable[..., Any]) -> None:
    one = good(tasks("a: {python: a.py}", "b: {python: b.py, after: [a]}"), "sgpu.yml")
    other = good(tasks("b: {after: [a], python: b.py}", "a: {python: a.py}"), "sgpu.yml")
    assert one.config_digest == other.config_digest


@pytest.mark.parametrize(
    ("line", "code", "column", "words"),
    [
        ("a: {run: train, python: a.py}", "contradiction", 7, "has `run` and `python`"),
        ("a: {after: []}", "contradiction", 7, "does not say what the task is"),
        ("a: {run: train, args: [x]}", "contradiction", 7, "a GPU task of the platform has no"),
        ("a: {run: trian}", "unknown_run", 16, "did you mean `train`?"),
        ("a: {python: ../a.py}", "bad_path", 19, "below the folder of the project"),
        ("a: {python: a.sh}", "bad_path", 19, "Python file"),
        ("a: {notebook: report.txt}", "bad_path", 21, "./report.ipynb"),
        ("a: {python: a.py, if: sometimes}", "unknown_value", 29, "all_done"),
        ("a: {python: a.py, aftr: [b]}", "unknown_key", 25, "`after`"),
        ("a: {python: a.py, depends_on: [b]}", "unknown_key", 25, "`after: [NAME]`"),
        ("a: {python: a.py, after: [b]}", "unknown_task", 33, "names no task of the job: `b`"),
        ("a: {python: a.py, after: [a]}", "cyclic_tasks", 33, "`a` comes after itself"),
        ("a: {task: {sql_task: {}}, dependencies: [x]}", "contradiction", 7, "name it with `base`"),
        (
            "a: {python: a.py, args: ['${job.parameters.d}']}",
            "undeclared_parameter",
            32,
            "declare it",
        ),
        ("a: {python: a.py, args: ['{{job.parameters.d}}']}", "undeclared_parameter", 32, "no par"),
        ("a: {python: a.py, args: ['${job.id}']}", "unknown_reference", 32, "`{{job.run_id}}`"),
        ("a: {python: a.py, args: ['${task.b.output}']}", "bad_output", 32, "use a volume"),
    ],
)
def test_what_is_wrong_with_a_task_is_told_at_its_place(
    bad: Callable[..., Any], line: str, code: str, column: int, words: str
) -> None:
    (found,) = bad(tasks(line), "sgpu.yml")
    assert (found.code, str(found.place)) == (code, f"sgpu.yml:6:{column}")
    assert words in f"{found.summary} {found.hint}"


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ("run: train", "contradiction", "either `run` or `notebook`, or `tasks`"),
        ("queue: true\n    on_overlap: skip", "contradiction", "say the same"),
        ("max_concurrent_runs: 2", "contradiction", "would share a folder"),
        ("notify: {}\n    on_finish: {}", "contradiction", "exclude each other"),
        ("notify: {failure: [{email: a@b.c, webhook: x}]}", "contradiction", "two entries"),
        ("run_as: {user: a, service_principal: b}", "contradiction", "either a `user`"),
        ("health: {longer_than: 100ms}", "bad_duration", "whole number of seconds"),
    ],
)
def test_what_is_wrong_with_a_job_of_tasks_is_told(
    bad: Callable[..., Any], fields: str, code: str, words: str
) -> None:
    (found,) = bad(tasks("a: {run: train}", more=f"    {fields}\n"), "sgpu.yml")
    assert found.code == code
    assert words in f"{found.summary} {found.hint}"


@pytest.mark.parametrize(
    ("trigger", "code", "words"),
    [
        ("{file_arrival: {min_time_between: 5m}}", "missing_key", "url"),
        (
            "{file_arrival: {url: /Volumes/a/b/c/, min_time_between: 5s}}",
            "bad_duration",
            "a minute",
        ),
        ("{table_update: {tables: [a]}}", "bad_table", "catalog and schema"),
        ("{table_update: {table_names: [a.b.c]}}", "unknown_key", "write `tables`"),
        ("{table_update: {tables: [a.b.c], condition: all}}", "unknown_value", "all_updated"),
    ],
)
def test_what_is_wrong_with_a_trigger_is_told(
    bad: Callable[..., Any], trigger: str, code: str, words: str
) -> None:
    found = bad(f"jobs:\n  j: {{notebook: {{path: /x}}, trigger: {trigger}}}\n", "sgpu.yml")
    assert found[0].code == code
    assert words in f"{found[0].summary} {found[0].hint}"


def test_a_target_replaces_the_whole_trigger(good: Callable[..., Any]) -> None:
    text = "jobs: {j: {notebook: {path: /x}, trigger: {every: 6h}}}\n"
    text += "targets: {prod: {jobs: {j: {trigger: {file_arrival: /Volumes/a/b/c/}}}}}\n"
    trigger = good(text, "sgpu.yml", "prod").jobs[0].config.trigger
    assert (trigger.every, trigger.file_arrival.url) == (None, "/Volumes/a/b/c/")


def test_a_cycle_of_tasks_is_told_as_a_path(bad: Callable[..., Any]) -> None:
    text = tasks(
        "a: {python: a.py, after: [c]}",
        "b: {python: b.py, after: [a]}",
        "c: {python: c.py, after: [b]}",
    )
    (found,) = bad(text, "sgpu.yml")
    assert found.code == "cyclic_tasks"
    assert found.summary.endswith("`a` → `c` → `b` → `a`")
    assert [str(one.place) for one in found.related] == ["sgpu.yml:8:33", "sgpu.yml:7:33"]


def test_only_a_condition_has_outcomes(bad: Callable[..., Any]) -> None:
    text = tasks("a: {python: a.py}", "b: {python: b.py, after: [a.true]}")
    (found,) = bad(text, "sgpu.yml")
    assert (found.code, "has no condition" in found.summary) == ("unknown_task", True)


@pytest.mark.parametrize("line", ["a: {python: a.py}", "a: {run: train}"])
def test_a_parameter_that_nobody_can_see_is_told(line: str) -> None:
    """Of GPU tasks that is the assumption `task-parameters`."""
    loaded, (found,) = outcome(tasks(line, more="    parameters: {day: x}\n"), "sgpu.yml")
    assert loaded is not None
    assert (found.code, found.severity, str(found.place)) == (
        "unused_parameter", "warning", "sgpu.yml:5:18",
    )  # fmt: skip


@pytest.mark.parametrize("line", ["a: {notebook: /x}", "a: {task: {run_job_task: {job_id: 1}}}"])
def test_a_parameter_that_the_platform_may_give_is_used(
    good: Callable[..., Any], line: str
) -> None:
    good(tasks(line, more="    parameters: {day: x}\n"), "sgpu.yml")


def test_run_as_of_a_target_wins_over_defaults_and_loses_to_a_job(good: Callable[..., Any]) -> None:
    text = "defaults: {job: {run_as: {user: a}}}\n"
    text += "jobs: {j: {notebook: {path: /x}}, k: {notebook: {path: /x}, run_as: {user: k}}}\n"
    text += "targets: {prod: {run_as: {service_principal: s}}, dev: {}}\n"
    found = {
        target: [job.config.run_as.model_dump() for job in good(text, "sgpu.yml", target).jobs]
        for target in ("prod", "dev")
    }
    own = {"user": "k", "service_principal": None}
    assert found == {
        "prod": [{"user": None, "service_principal": "s"}, own],
        "dev": [{"user": "a", "service_principal": None}, own],
    }


def test_who_launches_run_as_may_be_said_for_all_jobs(good: Callable[..., Any]) -> None:
    text = "run_as: {user: a}\njobs: {j: {notebook: {path: /x}}}\n"
    text += "targets: {prod: {run_as: {service_principal: s}}, dev: {run_as: null}}\n"
    found = {
        target: good(text, "sgpu.yml", target).jobs[0].config.run_as
        for target in (None, "prod", "dev")
    }
    assert found[None].user == "a"
    assert found["prod"].service_principal == "s"
    assert found["dev"] is None


def test_a_script_of_an_included_file_lies_beside_it(good: Callable[..., Any]) -> None:
    part = "jobs: {j: {tasks: {a: {python: a.py}, b: {notebook: n.ipynb}}}}\n"
    included = including({"jobs/j.yml": part})
    loaded = good("include: [jobs/*.yml]\n", "sgpu.yml", read_included=included)
    (job,) = loaded.jobs
    assert job.config.tasks["a"].python == "jobs/a.py"
    assert job.config.tasks["b"].notebook.path == "jobs/n.ipynb"
