"""A run without a YAML file is planned, applied and remembered like any other."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from sgpu_decl.rendering.run_file import name_of
from tests.cli.conftest import Shell
from tests.cli.test_gpus import H100
from tests.support import COMMAND_RUN, shell_program

OFF = ("--set", "mlflow.enabled=false")
TRAIN = """\
import os, sys

def main(lr, name="x"):
    return [lr, name]

if __name__ == "__main__":
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], sys.argv[1:])
"""


def test_a_script_runs_on_several_ranks_and_is_remembered(sgpu: Shell) -> None:
    sgpu.write("train.py", TRAIN)
    words = ("run", "-y", "--gpus", "2", "--type", "CPU", *OFF, "--rank", "1")
    ran = sgpu.done(*words, "--", "python", "train.py", "--lr", "1e-3")
    assert ran.out.endswith("rank 1 of 2 ['--lr', '1e-3']\n")
    assert "because: first run\n" in ran.out
    assert "rank 0 of 2" in sgpu.here("logs", "train").out
    sgpu.done(*words, "--", "python", "train.py", "--lr", "1e-3")
    (run,) = sgpu.data("status")["runs"]
    assert (run["address"], run["attempt"], run["state"]) == ("run.train", 2, "succeeded")
    assert "saved" not in " ".join(path.name for path in sgpu.folder.iterdir())
    assert not list(sgpu.folder.glob("*.yaml"))
    sgpu.done("destroy", "train", "-y")
    sgpu.done("gc", "-y", "--all", "--keep-last", "0")


def test_a_function_gets_named_values(sgpu: Shell) -> None:
    sgpu.write("train.py", TRAIN)
    sgpu.done("run", "-y", "-g", "1", "--type", "CPU", *OFF, "train.py:main", "lr=0.1")
    assert sgpu.here("results").out.startswith('rank 0: [0.1, "x"]')


def test_save_writes_the_file_that_says_the_same(sgpu: Shell) -> None:
    sgpu.write("train.py", TRAIN)
    words = ("run", "-y", "-g", "1", "--type", "CPU", *OFF, "--name", "first", "--save", "run.yaml")
    ran = sgpu.done(*words, "python", "train.py", "--lr", "1")
    assert "wrote `run.yaml`: `sgpu apply run.yaml` runs it too" in ran.err
    assert (sgpu.folder / "run.yaml").read_text().startswith("name: first\n")
    (change,) = sgpu.data("plan")["changes"]
    assert (change["address"], change["reason"]) == ("run.first", "up_to_date")
    assert "there is a `run.yaml` already" in sgpu.exits(1, *words, "python", "train.py").err


def test_nothing_is_saved_before_the_run_is_approved(sgpu: Shell) -> None:
    sgpu.write("train.py", TRAIN)
    (sgpu.folder / "below").mkdir()
    words = ("run", "--type", "CPU", *OFF)
    for save, more, told in (
        ("r.yaml", ("-y", "train.py:man"), "did you mean `main`?"),
        ("r.yaml", ("train.py",), "cannot ask for approval"),
        ("r.yaml", ("-y", "--rank", "1", "train.py"), "there is no rank 1"),
        ("below/r.yaml", ("-y", "train.py"), "is not in the current folder"),
        ("r.txt", ("-y", "train.py"), "ends in `.yaml`"),
    ):
        refused = sgpu.here(*words, "--save", save, *more)
        assert told in refused.err, refused.err
    assert not [*sgpu.folder.glob("**/r.*"), *sgpu.folder.glob(".sgpu")]
    sgpu.done(*words, "-y", "--save", "./r.yaml", "train.py")
    assert "entrypoint: train.py\n" in (sgpu.folder / "r.yaml").read_text()


def test_a_name_that_a_file_declares_is_refused(sgpu: Shell) -> None:
    declared = "{gpus: 1, type: CPU, command: ['true'], mlflow: {enabled: false}}"
    sgpu.write("sgpu.yml", f"project: {{name: p}}\nruns: {{train: {declared}}}\n")
    sgpu.write("train.py", TRAIN)
    sgpu.write("sgpu run", "name: other\n")  # a file that has this name is not that of the run
    words = ("run", "-y", "--type", "CPU", *OFF)
    below = sgpu.folder / "below"
    below.mkdir()
    for folder, file in ((sgpu.folder, "sgpu.yml"), (below, "../sgpu.yml")):
        refused = sgpu.exits(1, *words, "--name", "train", "train.py", cwd=folder)
        assert f"error[name_declared]: `{file}` declares a run `train`" in refused.err
        assert "with `--name`; `sgpu apply " in refused.err
    sgpu.done(*words, "--name", "other", "train.py")
    sgpu.done(*words, "--name", "other", "train.py")
    sgpu.write("more.yaml", COMMAND_RUN.replace("hello", "more"))
    sgpu.done("apply", "-y", "more.yaml")
    assert "`more.yaml` declares" in sgpu.here(*words, "--name", "more", "true").err


def test_a_name_of_its_own_is_the_next_one_that_is_free(sgpu: Shell) -> None:
    declared = "{gpus: 1, type: CPU, command: ['true'], mlflow: {enabled: false}}"
    sgpu.write(
        "sgpu.yml", f"project: {{name: p}}\nruns: {{train: {declared}, train-2: {declared}}}\n"
    )
    sgpu.write("train.py", TRAIN)
    words = ("run", "-y", "--type", "CPU", *OFF, "train.py")
    first = sgpu.done(*words)
    assert "`sgpu.yml` declares a run `train`: this run is `train-2`" in first.err
    assert "train-3#1 succeeded" in first.err
    again = sgpu.here(*words)
    assert "because: `sgpu run` was called" in again.out
    assert "train-3#2 succeeded" in again.err
    sgpu.done(*words[:-1], "train.py", "--lr", "1")
    history = sgpu.here("show", "train-3").out
    assert "a rerun was requested" not in history
    assert history.count("reason: `sgpu run` was called") == 2


def test_an_active_run_is_not_replaced_unasked(sgpu: Shell) -> None:
    words = ("run", "-y", "--type", "CPU", *OFF, "--set", "grace=500ms", "--name", "z")
    sgpu.done(*words, "--detach", "sleep", "300")
    refused = sgpu.exits(1, *words, "--on-active", "replace", "sleep", "300")
    assert "hint: stop it first with `sgpu cancel z`, or use `--on-active queue`" in refused.err
    sgpu.done("cancel", "z")


def test_what_is_wrong_is_said_before_anything_starts(sgpu: Shell) -> None:
    sgpu.write("run.yaml", "name: a\n")
    cases = {
        ("run", "--type", "H10", "true"): (1, "unknown_gpu_type"),
        ("run", "absent.py"): (1, "absent.py"),
        ("run", "run.yaml"): (64, "`sgpu apply run.yaml` runs what it describes"),
        ("run", "absent.yaml"): (64, "`sgpu apply absent.yaml` runs what it describes"),
        ("run", "--set", "name=x", "true"): (64, "use `--name`"),
        ("run", "--name", "a b", "true"): (64, "is not a name for a run"),
        ("run", "--detach", "--rank", "0", "true"): (64, "leave out `--rank`"),
        ("run",): (64, "missing argument"),
        ("run", "--type", "CPU", "true"): (1, "cannot ask for approval"),
        ("run", "-y", "--type", "CPU", "--rank", "1", "true"): (1, "there is no rank 1"),
    }
    for words, (code, told) in cases.items():
        refused = sgpu.here(*words)
        assert refused.code == code, (words, refused.err)
        assert told in refused.err.lower() or told in refused.err, words
    assert not (sgpu.folder / ".sgpu").exists()


def test_another_python_stays_the_one_that_was_named(sgpu: Shell, tmp_path: Path) -> None:
    other = shell_program(tmp_path / "venv/bin/python", f'exec {shlex.quote(sys.executable)} "$@"')
    sgpu.write("train.py", TRAIN)
    environ = {**sgpu.environ, "PATH": f"{other.parent}:{sgpu.environ['PATH']}"}
    shell = Shell(sgpu.folder, environ)
    ran = shell.done("run", "-y", "--type", "CPU", *OFF, "-o", "json", "python", "train.py")
    assert shell.data("show", "train")["spec"]["env"] == {"python": str(other)}
    assert json.loads(ran.out)["data"]["attempts"] == ["train#1"]


def test_the_type_is_any_gpu_where_there_is_one(on: Callable[..., Shell]) -> None:
    for gpus, type_ in (((H100,), "GPU"), ((), "CPU")):
        assert f'type: "{type_}"' in on(*gpus)("run", *OFF, "true").out


def test_a_run_of_the_same_name_leaves_earlier_cells_alone(sgpu: Shell) -> None:
    sgpu.write("train.py", TRAIN)
    words = ("run", "-y", "--type", "CPU", *OFF, "--name", "z")
    sgpu.done(*words, "--set", "matrix.lr=[1,2]", "train.py:main")
    sgpu.done(*words, "train.py:main", "lr=3")
    listed = sgpu.data("state", "list")["resources"]
    assert {item["gone"] for item in listed} == {False}
    assert len(listed) == 3


def test_a_run_is_named_after_its_script_module_or_program() -> None:
    names = {
        "train.py": "train",
        "src/tr.v2.py:main": "tr-v2",
        "pkg.train:main": "train",
        "prepare.sh": "prepare",
        "python3.11": "python3-11",
    }
    assert {word: name_of([word]) for word in names} == names
