"""Code that configures MLflow itself, in ranks of every kind: its choice holds."""

import shutil
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.sampling import strided
from tests.support import require, until

require("mlflow")
pytestmark = pytest.mark.mlflow

LAUNCHED = Path(__file__).parent / "launched" / "choices.py"
RUN = "name: choice\ngpus: {ranks}\ntype: CPU\ngrace: 1s\n"
SCRIPT = RUN + "entrypoint: choices.py\nargs: ['{choice}']\n"
FUNCTION = RUN + "entrypoint: choices.py:main\nargs: {{choice: '{choice}'}}\n"
WARM = SCRIPT + "launch: {{warm: [mlflow]}}\n"
FORMS = {"script": SCRIPT, "function": FUNCTION, "warm": WARM}
CHOICES: list[tuple[str, set[tuple[str, int]]]] = [
    ("experiment", {("other", 2)}),
    ("our experiment", set()),
    ("store", {("Default", 1)}),
    ("store and back", set()),
    ("bare", set()),
    ("nested", {("choice", 2)}),
    ("several", {("choice", 4)}),
    ("argument", {("other-0", 1), ("other-1", 1)}),
    ("variable", {("other-0", 1), ("other-1", 1)}),
]
CASES = [(form, *choice) for choice in CHOICES for form in FORMS]


def chosen(project: Shell, form: str, choice: str, ranks: int) -> Mapping[str, Any]:
    """Launch ranks that make a choice; return what status says of their tracking."""
    shutil.copy(LAUNCHED, project.folder)
    project.write("run.yaml", form.format(choice=choice, ranks=ranks))
    done = project("apply", "-y")
    assert done.code == 0, done.out + done.err
    (run,) = project.here("status", "choice", "-o", "json").json["data"]["runs"]
    return dict(run["links"]["mlflow"])


def own_run(project: Shell, told: Mapping[str, Any]) -> tuple[str, str]:
    """The status of the attempt's own run, once its tracker has ended, and a parameter of it."""
    until(lambda: not any((project.folder / ".sgpu" / "mlflow-open").iterdir()))
    with closing(sqlite3.connect(project.folder / ".sgpu" / "mlflow.db")) as db:
        return db.execute(
            "SELECT status, value FROM runs JOIN params USING (run_uuid) "
            "WHERE run_uuid = ? AND key = 'sgpu.type'",
            (told["run_id"],),
        ).fetchone()


def elsewhere(told: Mapping[str, Any]) -> set[tuple[str, int]]:
    return {(place["experiment"], place["runs"]) for place in told.get("elsewhere", ())}


@pytest.mark.expensive
def test_a_script_that_sets_its_experiment_logs_there_and_status_says_so(project: Shell) -> None:
    told = chosen(project, SCRIPT, "experiment", 1)
    assert elsewhere(told) == {("other", 1)}
    assert "1 run of its own, in the experiment other of" in project.here("status").err
    assert own_run(project, told) == ("FINISHED", "CPU")


@pytest.mark.expensive
def test_an_experiment_that_another_rank_made_meanwhile_is_the_one_that_was_chosen(
    project: Shell,
) -> None:
    told = chosen(project, SCRIPT, "experiment of two ranks", 1)
    assert elsewhere(told) == {("other", 1)}


@pytest.mark.expensive
@pytest.mark.parametrize(("form", "choice", "places"), strided(CASES, 2))
def test_what_the_code_chooses_holds_in_every_rank(
    project: Shell, form: str, choice: str, places: set[tuple[str, int]]
) -> None:
    told = chosen(project, FORMS[form], choice, 2)
    assert elsewhere(told) == places
    assert own_run(project, told) == ("FINISHED", "CPU")
    if choice == "store":
        stores = {place["tracking_uri"] for place in told["elsewhere"]}
        output = project.folder / ".sgpu/default/runs/choice/1/output"
        assert stores == {f"sqlite:///{output}/own{rank}.db" for rank in (0, 1)}


@pytest.mark.parametrize(
    ("form", "logged"),
    [
        ("entrypoint: train.py\n", 'mlflow.log_param("seed", 100 + rank)'),
        (
            f"command: ['{sys.executable}', train.py]\n",
            'mlflow.log_params({"seed": 100 + rank, "lr": 1})',
        ),
    ],
    ids=["script", "command"],
)
@pytest.mark.expensive
def test_ranks_that_log_other_values_of_a_parameter_are_told_that_they_share_a_run(
    project: Shell, form: str, logged: str
) -> None:
    lines = ("import mlflow, os, time", 'rank = int(os.environ["RANK"])', logged, "time.sleep(600)")
    project.write("train.py", "\n".join(lines))
    project.write("run.yaml", RUN.format(ranks=2) + form)
    assert project("apply", "-y").code == 5
    (run,) = project.here("status", "choice", "-o", "json").json["data"]["runs"]
    assert run["first_cause"]["summary"].startswith(
        "mlflow.exceptions.MlflowException: ranks share one MLflow run, in which `seed` has "
        "another value already: log it in rank 0 alone, or with the rank in its name. "
        "Changing param values is not allowed."
    )


@pytest.mark.expensive
def test_a_rank_that_logs_two_values_itself_in_a_run_of_its_own_is_told_by_mlflow(
    project: Shell,
) -> None:
    project.write(
        "train.py",
        "import mlflow\nmlflow.start_run()\nwith mlflow.start_run(nested=True):\n"
        "    mlflow.log_param('seed', 1)\n    mlflow.log_param('seed', 2)\n",
    )
    project.write("run.yaml", RUN.format(ranks=2) + "entrypoint: train.py\n")
    assert project("apply", "-y").code == 5
    (run,) = project.here("status", "choice", "-o", "json").json["data"]["runs"]
    assert ": Changing param values is not allowed." in run["first_cause"]["summary"]


def test_a_rank_that_imports_no_mlflow_waits_for_no_tracker(project: Shell) -> None:
    (project.folder / ".sgpu" / "mlflow.db").mkdir(parents=True)
    project.write("run.yaml", RUN.format(ranks=1) + "entrypoint: quick.py\n")
    project.write("quick.py", "import sys\nprint('json' in sys.modules, 'mlflow' in sys.modules)\n")
    done = project("apply", "-y")
    assert done.code == 0
    assert "False False\n" in done.out


@pytest.mark.expensive
@pytest.mark.parametrize(
    ("choice", "models"), [("model first", 1), ("model beside another experiment", 0)]
)
def test_a_model_that_is_logged_before_all_else_is_of_the_attempts_run(
    project: Shell, choice: str, models: int
) -> None:
    tracking = chosen(project, SCRIPT, choice, 1)
    with closing(sqlite3.connect(project.folder / ".sgpu" / "mlflow.db")) as db:
        linked = db.execute(
            "SELECT COUNT(*) FROM inputs WHERE source_id = ? AND destination_type = 'MODEL_OUTPUT'",
            (tracking["run_id"],),
        ).fetchone()
    assert linked == (models,)
