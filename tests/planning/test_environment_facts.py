"""Runs in environments of their own, from plan to ranks."""

import compileall
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.api import Location, PlanOptions, Session
from sgpu_decl.errors import InvalidInput, StalePlan
from sgpu_decl.model.environment import EnvironmentKind, Package
from sgpu_decl.model.plan import Action, Plan, Reason
from sgpu_decl.planning.plan_file import load_plan
from tests.support import PATIENCE, refusing, some

RUN = """\
name: train
gpus: 2
type: CPU
entrypoint: train.py:main
env: {snapshot: true, python: venv/bin/python}
mlflow: {enabled: false}
"""
TRAIN = """\
import sys


def main():
    import greet

    return [greet.WORD, sys.prefix]
"""
Apply = Callable[..., Plan]
Open = Callable[..., Session]


class Venv:
    """A virtual environment with one package, `greet`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "bin").mkdir(parents=True)
        (path / "bin/python").symlink_to(sys.executable)
        home = Path(os.path.realpath(sys.executable)).parent
        (path / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
        minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = path / "lib" / minor / "site-packages"
        self.site.mkdir(parents=True)

    def install(self, version: str, word: str) -> None:
        for old in self.site.glob("greet-*.dist-info"):
            shutil.rmtree(old)
        (self.site / "greet.py").write_text(f"WORD = {word!r}\n")
        info = self.site / f"greet-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: greet\nVersion: {version}\n")


@pytest.fixture
def venv(folder: Path) -> Venv:
    made = Venv(folder / "venv")
    made.install("1.0", "one")
    (folder / "run.yaml").write_text(RUN)
    (folder / "train.py").write_text(TRAIN)
    return made


@pytest.fixture
def store(folder: Path) -> Path:
    return folder.parent / "data/sgpu/store/environments"


def values(session: Session, name: str = "train") -> list[Any]:
    return [rank["value"] for rank in session.runs.results(session.runs.find_one(name))]


def words(session: Session, name: str = "train") -> list[str]:
    return [value[0] for value in values(session, name)]


def changes(plan: Plan) -> dict[str, tuple[Action, Reason]]:
    return {str(change.address): (change.action, change.reason) for change in plan.changes}


def test_ranks_run_in_a_tree_of_the_snapshot(
    venv: Venv, store: Path, apply: Apply, open_file: Open
) -> None:
    apply()
    found = values(open_file())
    assert [word for word, _ in found] == ["one", "one"]
    (tree,) = {prefix for _, prefix in found}
    assert Path(tree).parent == store / "trees"


def test_plan_after_apply_changes_nothing(venv: Venv, apply: Apply, open_file: Open) -> None:
    apply()
    assert changes(open_file().plan().plan) == {
        "environment.train": (Action.NO_OP, Reason.UP_TO_DATE),
        "run.train": (Action.NO_OP, Reason.UP_TO_DATE),
    }


def test_bytecode_is_no_part_of_what_is_to_be_staged(venv: Venv, open_file: Open) -> None:
    compileall.compile_dir(venv.site, quiet=1)
    (environment, _) = open_file().plan().plan.changes
    assert environment.environment is not None
    assert environment.environment.bytes_to_stage == environment.environment.bytes


def test_a_package_that_changed_is_the_reason_for_another_attempt(
    venv: Venv, apply: Apply, open_file: Open
) -> None:
    apply()
    venv.install("2.0", "two")
    made = apply()
    assert changes(made) == {
        "environment.train": (Action.UPDATE, Reason.ENVIRONMENT_CHANGED),
        "run.train": (Action.CREATE, Reason.ENVIRONMENT_CHANGED),
    }
    (package,) = made.changes[0].environment.packages
    assert (package.name, package.before, package.after) == ("greet", "1.0", "2.0")
    assert words(open_file()) == ["two", "two"]


def test_going_back_stages_nothing(venv: Venv, apply: Apply) -> None:
    apply()
    venv.install("2.0", "two")
    apply()
    venv.install("1.0", "one")
    environment = some(apply().changes[0].environment)
    assert (environment.bytes_to_stage, environment.bytes) == (0, environment.bytes)


def test_a_saved_plan_runs_in_what_was_planned(venv: Venv, folder: Path, open_file: Open) -> None:
    session = open_file()
    session.save(session.plan(), folder / "saved.plan")
    venv.install("2.0", "two")
    again = open_file()
    again.runs.wait(again.apply(load_plan(folder / "saved.plan")).launched, timeout=PATIENCE)
    assert words(again) == ["one", "one"]


def test_where_only_the_plan_is_known_the_same_environment_is_made_again(
    venv: Venv, folder: Path, store: Path, open_file: Open
) -> None:
    session = open_file()
    session.save(session.plan(), folder / "saved.plan")
    shutil.rmtree(store)
    again = open_file()
    again.runs.wait(again.apply(load_plan(folder / "saved.plan")).launched, timeout=PATIENCE)
    assert words(again) == ["one", "one"]


def test_another_environment_than_the_planned_one_launches_nothing(
    venv: Venv, folder: Path, store: Path, open_file: Open
) -> None:
    session = open_file()
    session.save(session.plan(), folder / "saved.plan")
    shutil.rmtree(store)
    venv.install("2.0", "two")
    again = open_file()
    with refusing("environment_differs", StalePlan):
        again.apply(load_plan(folder / "saved.plan"))
    assert not (again.state_dir / "runs").exists()


@pytest.mark.expensive
def test_a_tree_that_is_gone_is_made_once_more(
    venv: Venv, store: Path, apply: Apply, open_file: Open
) -> None:
    apply()
    for tree in store.glob("trees/*"):
        tree.chmod(0o700)
        shutil.rmtree(tree, ignore_errors=True)
    session = open_file()
    plan = session.plan(PlanOptions(rerun=("train",)))
    session.runs.wait(session.apply(plan).launched, timeout=PATIENCE)
    assert words(session) == ["one", "one"]


def test_runs_of_a_project_share_one(
    venv: Venv, folder: Path, store: Path, apply: Apply, open_file: Open
) -> None:
    (folder / "sgpu.yml").write_text(
        "environments: {mine: {snapshot: true, python: venv/bin/python}}\n"
        "runs:\n"
        "  a: &run {gpus: 1, type: CPU, entrypoint: 'train.py:main', env: mine,"
        " mlflow: {enabled: false}}\n"
        "  b: *run\n"
    )
    assert set(changes(apply("sgpu.yml"))) == {"environment.mine", "run.a", "run.b"}
    assert len(list(store.glob("trees/[0-9a-f]*"))) == 1
    assert words(open_file("sgpu.yml"), "b") == ["one"]


def test_commands_find_the_programs_of_the_environment_first(
    venv: Venv, folder: Path, apply: Apply, open_file: Open
) -> None:
    run = RUN.replace(
        "entrypoint: train.py:main",
        "command: 'python -c \"import greet; print(greet.WORD)\" > $SGPU_OUTPUT_DIR/$RANK'",
    )
    (folder / "run.yaml").write_text(run)
    apply()
    output = open_file().state_dir / "runs/train/1/output"
    assert [(output / rank).read_text() for rank in ("0", "1")] == ["one\n", "one\n"]


def test_an_activated_environment_is_hidden_from_ranks(
    venv: Venv, folder: Path, apply: Apply, open_file: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(folder / "mine"))
    (folder / "train.py").write_text(
        "import os\n\ndef main():\n    return [os.environ['VIRTUAL_ENV']]\n"
    )
    apply()
    assert words(open_file()) == ["", ""]


def test_destroy_lets_go_of_the_environment(venv: Venv, apply: Apply, open_file: Open) -> None:
    apply()
    session = open_file()
    session.apply(session.plan(PlanOptions(destroy=True)))
    assert all(resource.gone for resource in session.state.resources())
    assert session.plan(PlanOptions(destroy=True)).plan.changes == ()
    assert changes(session.plan().plan)["environment.train"] == (Action.CREATE, Reason.FIRST_RUN)


def test_an_interpreter_that_is_not_there_is_said_at_its_place(
    venv: Venv, folder: Path, open_file: Open
) -> None:
    (folder / "run.yaml").write_text(RUN.replace("venv/bin", "nowhere/bin"))
    plan = open_file().plan().plan
    (check,) = (item for item in plan.checks if item.code == "python_missing")
    assert str(check.place).endswith("run.yaml:5:31")
    assert not plan.applyable


@pytest.mark.parametrize("value", ["elsewhere", ""])
def test_variables_of_the_shell_lead_no_rank_to_other_packages(
    venv: Venv,
    folder: Path,
    apply: Apply,
    open_file: Open,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere/greet.py").write_text("WORD = 'shadow'\n")
    monkeypatch.setenv("PYTHONPATH", value and str(folder.parent / value))
    monkeypatch.setenv("PYTHONUSERBASE", str(folder.parent / "user"))
    plan = apply()
    assert words(open_file()) == ["one", "one"]
    checks = [item for item in plan.checks if item.code == "python_path_left_out"]
    assert [str(item.severity) for item in checks] == (["warning"] if value else [])
    assert all("`PYTHONPATH`" in item.summary for item in checks)


def test_a_path_of_the_run_itself_is_kept(
    venv: Venv, folder: Path, apply: Apply, open_file: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "own").mkdir()
    (folder / "own/greet.py").write_text("WORD = 'own'\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    run = (folder / "run.yaml").read_text()
    (folder / "run.yaml").write_text(run.replace("env: {", "env: {variables: {PYTHONPATH: own}, "))
    plan = apply()
    assert words(open_file()) == ["own", "own"]
    assert not [item for item in plan.checks if item.code == "python_path_left_out"]


@pytest.mark.parametrize("origin", ["snapshot: true", "dependencies: [six]"])
def test_a_shim_without_that_python_is_said_at_its_place(
    venv: Venv, folder: Path, monkeypatch: pytest.MonkeyPatch, open_file: Open, origin: str
) -> None:
    shim = folder.parent / "shims/python3.99"
    shim.parent.mkdir()
    shim.write_text("#!/bin/sh\necho 'no 3.99 is installed' >&2\necho '  see help' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(shim.parent), prepend=os.pathsep)
    monkeypatch.setenv("PYENV_ROOT", str(folder))
    declared = f"{{{origin}, python: 3.99}}"
    (folder / "run.yaml").write_text(
        RUN.replace("{snapshot: true, python: venv/bin/python}", declared)
    )
    plan = open_file().plan().plan
    (check,) = (item for item in plan.checks if item.severity == "error")
    assert check.summary == "this machine has no Python `3.99`"
    assert f"`{shim}` was passed over: no 3.99 is installed" in str(check.hint)
    assert str(check.place).endswith(f"run.yaml:5:{declared.index('3.99') + 6}")
    assert not plan.applyable


def test_a_requirement_that_does_not_exist_is_said_at_its_place(
    venv: Venv, folder: Path, monkeypatch: pytest.MonkeyPatch, open_file: Open
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    (folder / "run.yaml").write_text(
        RUN.replace("{snapshot: true, python: venv/bin/python}", "{dependencies: [no-such-thing]}")
    )
    plan = open_file().plan().plan
    (check,) = (item for item in plan.checks if item.severity == "error")
    assert "no-such-thing" in check.summary
    assert str(check.place).endswith("run.yaml:5:22")
    assert check.hint


def test_two_environments_of_one_name_are_refused(
    venv: Venv, folder: Path, open_file: Open
) -> None:
    (folder / "sgpu.yml").write_text(
        "environments: {a: {snapshot: true, python: venv/bin/python}}\n"
        "runs:\n"
        "  b: {gpus: 1, type: CPU, command: x, env: a}\n"
        "  a: {gpus: 1, type: CPU, command: x, env: {snapshot: true}}\n"
    )
    plan = open_file("sgpu.yml").plan().plan
    assert [check.code for check in plan.checks if check.severity == "error"] == [
        "two_environments"
    ]


def test_gc_keeps_what_states_refer_to(
    venv: Venv, store: Path, apply: Apply, open_file: Open
) -> None:
    apply()
    assert open_file().gc(keep_last=0, older_than=None, dry_run=False)["environment_bytes"] == 0
    assert len(list(store.glob("manifests/*.json"))) == 1
    assert changes(open_file().plan().plan)["environment.train"][0] is Action.NO_OP


@pytest.mark.expensive
def test_an_environment_is_part_of_what_a_worker_of_another_project_shares(
    venv: Venv, folder: Path, store: Path
) -> None:
    """Two projects that plan and apply at once make one tree."""
    other = folder.parent / "other"
    shutil.copytree(folder, other, symlinks=True)
    commands = [
        subprocess.Popen(
            [sys.executable, "-m", "sgpu_decl", "apply", "-y", "run.yaml"],
            cwd=where,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for where in (folder, other)
    ]
    for command in commands:
        said, _ = command.communicate(timeout=PATIENCE)
        assert command.returncode == 0, said
    assert len(list(store.glob("trees/[0-9a-f]*"))) == 1
    assert not list(store.glob("trees/.making*"))


def test_invalid_combinations_never_look_at_an_interpreter(
    venv: Venv, folder: Path, open_file: Open
) -> None:
    (folder / "run.yaml").write_text(RUN.replace("snapshot: true", "snapshot: true, lock: uv.lock"))
    with pytest.raises(InvalidInput):
        open_file().plan()


@pytest.mark.expensive
@pytest.mark.skipif(os.geteuid() != 0, reason="others cannot write to a tree")
def test_what_root_wrote_into_an_environment_reaches_no_later_run(
    venv: Venv, folder: Path, apply: Apply, open_file: Open
) -> None:
    (folder / "train.py").write_text(
        TRAIN
        + "\n\ndef spoil():\n    import greet\n\n    open(greet.__file__, 'a').write('WORD = 2')\n"
    )
    (folder / "run.yaml").write_text(RUN.replace("train.py:main", "train.py:spoil"))
    session = open_file()
    session.runs.wait(session.apply(session.plan()).launched, timeout=PATIENCE)
    (noticed,) = session.record_ended()
    assert noticed.code == "environment_altered"
    assert "`lib/python3" in noticed.summary
    (folder / "run.yaml").write_text(RUN)
    apply()
    assert words(open_file()) == ["one", "one"]


def test_a_run_may_install_into_a_site_of_its_own(
    venv: Venv, folder: Path, apply: Apply, open_file: Open
) -> None:
    (folder / "train.py").write_text(
        "import os, subprocess, sys\n\n"
        "def main():\n"
        "    name = 'own' + os.environ['RANK']\n"
        "    path = os.path.join(os.environ['SGPU_SITE'], name + '.py')\n"
        "    open(path, 'w').write('WORD = \"own\"')\n"
        "    asked = [sys.executable, '-c', f'import {name}; print({name}.WORD)']\n"
        "    return [subprocess.check_output(asked, text=True) + __import__(name).WORD]\n"
    )
    apply()
    assert words(open_file()) == ["own\nown", "own\nown"]


def test_an_environment_over_the_limit_is_refused_with_its_largest_packages(
    venv: Venv, folder: Path, store: Path, open_file: Open
) -> None:
    (venv.site / "heavy").mkdir()
    (venv.site / "heavy/__init__.py").write_text("#" * (2 << 20))
    (folder / "run.yaml").write_text(RUN + "backend: {kind: local, environment_limit: 1MiB}\n")
    plan = open_file().plan().plan
    (check,) = (item for item in plan.checks if item.severity == "error")
    assert check.summary == "the environment holds 2.1 MB, and the backend takes 1.0 MB"
    assert "the largest are `heavy` 2.1 MB" in (check.hint or "")
    assert str(check.place).endswith("run.yaml:5:17")
    assert not plan.applyable
    assert not store.exists()


def test_a_bare_name_is_that_of_the_run_and_an_environment_has_no_folder_to_move(
    venv: Venv, apply: Apply, open_file: Open
) -> None:
    apply()
    session = open_file()
    assert str(session.state.show("train").address) == "run.train"
    session.state.move("environment.train", "other")
    assert words(session) == ["one", "one"]
    live = [str(resource.address) for resource in session.state.resources() if not resource.gone]
    assert live == ["environment.other", "run.train"]


@pytest.mark.expensive
def test_a_declared_environment_can_be_looked_at_by_its_address(
    venv: Venv, folder: Path, apply: Apply
) -> None:
    apply()
    found = Session.open(Location(project=folder)).environment("environment.train")
    assert found.packages == (Package("greet", "1.0"),)
    assert found.kind is EnvironmentKind.SNAPSHOT
