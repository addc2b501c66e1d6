"""Files that are no code by what they are: those of sgpu, environments, and what tools leave."""

import subprocess

import pytest

from sgpu_decl.code.selection import SelectionRule, exclusion_of
from sgpu_decl.code.snapshot import Snapshot, snapshot
from tests.code.conftest import Plant


def taken(plant: Plant, files: dict[str, str], *include: str) -> Snapshot:
    code, _ = snapshot(plant({"a.py": "", **files}), include=include)
    assert code is not None
    for item in code.exclusions:
        assert exclusion_of(code.root, item.path.rstrip("/"), include=include) == item
    return code


def paths(code: Snapshot) -> list[str]:
    return [entry.path for entry in code.entries if entry.path != "a.py"]


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        ("project: {name: a}\nruns: {}\n", True),
        (
            "project:\n  # a note\n  description: b\n  name: a\njobs:\n  x: {}\nvariables: {}\n",
            True,
        ),
        ("name: a\ngpus: 1\ntype: CPU\ncommand: [x]\ntargets: {}\n", True),
        ("project: mine\njobs: 4\n", False),
        ("project: mine\nruns: 3\nlr: 0.1\n", False),
        ("project: {name: a}\nruns: 3\nlr: 0.1\n", False),
        ("project:\n  entity: me\nruns:\n  name: x\n", False),
        ("gpus: 8\ncommand: train\nlr: 0.1\n", False),
    ],
)
def test_a_config_of_a_training_is_code_whatever_keys_it_shares_with_ours(
    plant: Plant,
    text: str,
    is_ours: bool,
) -> None:
    assert paths(taken(plant, {"conf.yaml": text})) == ([] if is_ours else ["conf.yaml"])
    assert paths(taken(plant, {"conf.yaml": text}, "conf.yaml")) == ["conf.yaml"]


def test_a_log_is_code_where_include_names_it(plant: Plant) -> None:
    files = {"data/train.log": "", "data/other.log": "", "events.out.tfevents.1.host": ""}
    assert paths(taken(plant, files)) == []
    assert paths(taken(plant, files, "data/*")) == []
    assert paths(taken(plant, files, "data/train.log")) == ["data/train.log"]
    assert paths(taken(plant, files, "*.log")) == ["data/other.log", "data/train.log"]


@pytest.mark.parametrize(
    "mark",
    [
        "env/pyvenv.cfg", "env/conda-meta/history", ".pixi/envs/default/conda-meta/history",
        "a/.tox/py/x", ".nox/x", "node_modules/x", "__pypackages__/3.11/lib/x", ".direnv/x",
    ],
)  # fmt: skip
def test_an_environment_is_no_code_whichever_tool_made_it(plant: Plant, mark: str) -> None:
    assert paths(taken(plant, {mark: ""})) == []


def test_an_old_virtualenv_is_known_by_its_programs(plant: Plant) -> None:
    code = taken(plant, {"env/bin/activate_this.py": "", "env/lib/x.py": ""})
    assert paths(code) == []
    assert code.exclusion("env/lib").rule is SelectionRule.ENVIRONMENT


def test_what_tools_leave_is_no_code_and_what_only_looks_so_is(plant: Plant) -> None:
    left = {
        "wandb/run-1/files/x": "",
        "lightning_logs/version_0/hparams.yaml": "",
        "outputs/2026-01-02/10-11-12/.hydra/config.yaml": "",
        "outputs/2026-01-02/10-11-12/x.txt": "",
        "multirun/2026-01-02/10-11-12/multirun.yaml": "",
        "multirun/2026-01-02/10-11-12/0/x.txt": "",
        "mlflow.db": "", "mlflow.db.lock": "", "mlflow.db-wal": "", "mlartifacts/0/x": "",
        "runs/exp/events.out.tfevents.1.host.2.0": "", "slurm-123.out": "",
        ".hydra/config.yaml": "",
    }  # fmt: skip
    code = taken(plant, left)
    assert paths(code) == []
    assert str(code.exclusion("wandb")) == "a tracker or framework left it there"
    ours = {
        "lib/wandb/__init__.py": "", "lib/wandb/run-x": "", "outputs/best.json": "",
        "sub/lightning_logs/reader.py": "", "slurm-a.out": "", "runs/list.csv": "",
    }  # fmt: skip
    assert paths(taken(plant, ours)) == sorted(ours)


def test_an_empty_submodule_is_named_as_one(plant: Plant) -> None:
    other = plant({"a.py": ""})
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run(
            ["git", "-C", other, "-c", "user.name=x", "-c", "user.email=x@x", *words], check=True
        )
    root = other.parent / "clone"
    add = ["-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "third/party"]
    for words in (["init", "-q", str(root)], ["-C", str(root), *add]):
        subprocess.run(["git", *words], check=True)
    subprocess.run(["git", "-C", root, "submodule", "deinit", "-f", "--all"], check=True)
    code, findings = snapshot(root)
    assert code.exclusion("third/party").rule is SelectionRule.SUBMODULE
    assert [(one.code, one.severity) for one in findings] == [("submodule_empty", "warning")]
    assert "`third/party` is empty" in findings[0].summary
