import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.api import PlanOptions, Session
from sgpu_decl.backends.local.local_attempts import LocalAttempts
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.errors import BackendError
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.plan import Plan


def plan(folder: Path, *said: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "sgpu_decl", "plan", *said],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def written(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("def main():\n    return 1\n")
    (tmp_path / "run.yaml").write_text("name: a\ngpus: 1\ntype: CPU\nentrypoint: train.py:main\n")
    return tmp_path


def test_an_entrypoint_that_an_ignore_rule_leaves_out_is_refused_at_plan(written: Path) -> None:
    (written / ".gitignore").write_text("train.py\n")
    refused = plan(written, "run.yaml")
    assert refused.returncode == 1
    output = refused.stdout + refused.stderr
    assert "is not part of the code: line 1 of `.gitignore` (`train.py`)" in output
    assert "hint: add `train.py` to `code.include`, or change that line" in output


def test_an_entrypoint_that_code_exclude_leaves_out_is_explained_by_it(written: Path) -> None:
    with (written / "run.yaml").open("a") as file:
        file.write("code: {exclude: ['*.py']}\n")
    refused = plan(written, "run.yaml")
    assert refused.returncode == 1
    output = refused.stdout + refused.stderr
    assert "is not part of the code: `*.py` in `code.exclude`" in output
    assert "gitignore" not in output


def test_secrets_in_the_tree_are_left_out_and_listed(written: Path) -> None:
    (written / ".env").write_text("PASSWORD=1\n")
    planned = plan(written, "run.yaml")
    assert planned.returncode == 0
    assert ".env" in planned.stdout


def test_the_interpreter_is_shown_where_it_runs_the_code_and_recorded_with_the_attempt(
    folder: Path, open_file: Callable[..., Session], apply: Callable[..., Plan]
) -> None:
    (folder / "train.py").write_text("def main():\n    return 1\n")
    (folder / "run.yaml").write_text(
        "name: a\ngpus: 1\ntype: CPU\nentrypoint: train.py:main\nmlflow: {enabled: false}\n"
    )
    (check,) = apply().checks
    assert (check.code, check.severity) == ("interpreter", Severity.INFO)
    assert f"`{sys.executable}`" in check.summary
    spec = open_file().state_dir / "runs/a/1/spec.json"
    assert json.loads(spec.read_text())["python"] == sys.executable
    assert apply().checks == ()  # nothing is launched


def test_the_interpreter_of_a_command_is_its_own_affair(
    folder: Path, open_file: Callable[..., Session]
) -> None:
    (folder / "run.yaml").write_text("name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\n")
    assert open_file().plan(PlanOptions()).plan.checks == ()


def test_a_python_that_is_not_here_is_refused_at_its_place(
    folder: Path, open_file: Callable[..., Session]
) -> None:
    (folder / "run.yaml").write_text(
        "name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\nenv: {python: 3.99}\n"
    )
    (check,) = open_file().plan(PlanOptions()).plan.checks
    assert (check.code, check.severity) == ("python_missing", Severity.ERROR)
    assert check.place is not None
    assert (check.place.line, check.place.column) == (5, 15)


def test_a_module_that_nobody_has_is_warned_of(
    folder: Path, open_file: Callable[..., Session]
) -> None:
    (folder / "training").mkdir()
    (folder / "training/start.py").write_text("def main():\n    return 1\n")
    run = "name: a\ngpus: 1\ntype: CPU\nentrypoint: traning.start:main\n"
    (folder / "run.yaml").write_text(run)
    warned = [
        check
        for check in open_file().plan(PlanOptions()).plan.checks
        if check.code == "module_not_found"
    ]
    assert [item.hint for item in warned] == ["did you mean `training`?"]

    # Another path than ours may lead there.
    (folder / "run.yaml").write_text(run + "env: {variables: {PYTHONPATH: /opt/lib}}\n")
    assert "module_not_found" not in {
        check.code for check in open_file().plan(PlanOptions()).plan.checks
    }


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("env:NOWHERE_SET", "is not set here"),
        ("file:/nonexistent/token", "does not exist"),
        ("file:~nobody-of-this-name/token", "does not exist"),
        ("file:/", "is a folder"),
        ("databricks:scope/key", "has no value on this machine"),
    ],
)
def test_a_secret_that_cannot_be_resolved_here_is_warned_of_and_refused_at_launch(
    folder: Path, open_file: Callable[..., Session], reference: str, why: str
) -> None:
    (folder / "run.yaml").write_text(
        f"name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\nenv:\n  secrets:\n    TOK: {reference}\n"
    )
    session = open_file()
    plan = session.plan(PlanOptions())
    (check,) = plan.plan.checks
    words = f"secret `TOK` refers to `{reference}`, which {why}"
    assert (check.code, check.severity) == ("secret_missing", Severity.WARNING)
    assert check.summary == f"{words}: `apply` here would refuse"
    assert check.place is not None
    assert check.place.line == 7
    with pytest.raises(BackendError) as refused:
        session.apply(plan)
    assert (refused.value.message, refused.value.code) == (words, "secret_missing")


def test_a_secret_in_a_file_is_looked_for_and_not_read(
    folder: Path, open_file: Callable[..., Session]
) -> None:
    token = folder.parent / "token"
    os.mkfifo(token)  # reading it would wait for a writer
    (folder / "run.yaml").write_text(
        "name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\n"
        f"env: {{secrets: {{TOK: 'file:{token}'}}}}\n"
    )
    assert open_file().plan(PlanOptions()).plan.checks == ()


def test_a_secret_that_is_no_text_is_refused_in_words(
    folder: Path, open_file: Callable[..., Session]
) -> None:
    (folder / "token").write_bytes(b"\xff\xfe")
    (folder / "run.yaml").write_text(
        "name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\n"
        f"env: {{secrets: {{TOK: 'file:{folder}/token'}}}}\n"
    )
    session = open_file()
    with pytest.raises(BackendError, match="which is no UTF-8 text"):
        session.apply(session.plan(PlanOptions()))


def test_more_ranks_than_one_machine_starts_are_refused(
    folder: Path, open_file: Callable[..., Session]
) -> None:
    run = "name: a\ngpus: {}\ntype: CPU\ncommand: ['true']\n"
    (folder / "run.yaml").write_text(run.format(4097))
    plan = open_file().plan(PlanOptions()).plan
    (check,) = plan.checks
    assert (check.code, check.severity, plan.applyable) == ("too_many_ranks", Severity.ERROR, False)
    assert check.place is not None
    assert (check.place.line, check.place.column) == (2, 7)

    for allowed in (run.format(4096), run.format(4097) + "launch: {per: node}\n"):
        (folder / "run.yaml").write_text(allowed)
        assert open_file().plan(PlanOptions()).plan.checks == ()


def test_the_pool_of_a_databricks_run_is_asked_of_the_environment(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (written / "run.yaml").open("a") as file:
        file.write("targets: {there: {backend: databricks}}\n")
    monkeypatch.setenv("DATABRICKS_USE_POOL", "false")
    assert "[pool]" not in plan(written, "run.yaml").stdout
    there = plan(written, "run.yaml", "-t", "there").stdout
    assert "info[pool]: run.a: GPUs come on demand, as `DATABRICKS_USE_POOL` asks" in there
    monkeypatch.setenv("DATABRICKS_USE_POOL", "maybe")
    refused = plan(written, "run.yaml", "-t", "there")
    there = refused.stdout + refused.stderr
    assert "`DATABRICKS_USE_POOL` must be true or false, not `maybe`" in there


def test_a_run_on_another_backend_finds_no_output_of_this_one(
    folder: Path, open_file: Callable[..., Session], apply: Callable[..., Plan]
) -> None:
    (folder / "train.py").write_text(
        "import os\ndef main():\n    open(os.environ['SGPU_OUTPUT_DIR'] + '/a', 'w').close()\n"
    )
    text = "name: a\ngpus: 1\ntype: CPU\nentrypoint: train.py:main\nresume: auto\n"
    text += "mlflow: {enabled: false}\n"
    (folder / "run.yaml").write_text(text)
    apply()

    def said() -> list[str]:
        with open_file() as session:
            checks = session.plan(PlanOptions(rerun=("a",))).plan.checks
        return [check.summary for check in checks if check.code == "resumes"]

    assert said() == ["it finds the output of `a#1` in SGPU_PREVIOUS_OUTPUT_DIR"]
    (folder / "run.yaml").write_text(f"{text}backend: {{kind: ray, storage: {folder}/shared}}\n")
    assert said() == ["no earlier attempt left output: it starts from the beginning"]


def test_only_runs_that_are_launched_are_asked_for_earlier_output(
    folder: Path,
    open_file: Callable[..., Session],
    apply: Callable[..., Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder / "train.py").write_text(
        "import os\ndef main(lr):\n    open(os.environ['SGPU_OUTPUT_DIR'] + '/a', 'w').close()\n"
    )
    run = "{gpus: 1, type: CPU, entrypoint: train.py:main, mlflow: {enabled: false}, resume: auto"
    text = f"project: {{name: p}}\nruns:\n  a: {run}, args: {{lr: 1}}}}\n"
    (folder / "sgpu.yml").write_text(f"{text}  b: {run}, args: {{lr: 1}}}}\n")
    apply("sgpu.yml")
    asked = []
    answer = LocalAttempts.left_output

    def noted(self: LocalAttempts, record: LaunchRecord, config: RunConfig) -> bool:
        asked.append(str(record.ref))
        return answer(self, record, config)

    monkeypatch.setattr(LocalAttempts, "left_output", noted)

    def said() -> list[str]:
        with open_file("sgpu.yml") as session:
            checks = session.plan(PlanOptions()).plan.checks
        return [f"{check.address}: {check.summary}" for check in checks if check.code == "resumes"]

    assert (said(), asked) == ([], [])
    (folder / "sgpu.yml").write_text(f"{text}  b: {run}, args: {{lr: 2}}}}\n")
    assert said() == ["run.b: it finds the output of `b#1` in SGPU_PREVIOUS_OUTPUT_DIR"]
    assert asked == ["b#1"]
