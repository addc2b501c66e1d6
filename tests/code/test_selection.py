from typing import Any

import pytest

from sgpu_decl.code.selection import SelectionRule, exclusion_of
from sgpu_decl.code.snapshot import snapshot
from tests.code.conftest import Plant


def test_one_path_is_judged_as_a_walk_of_the_tree_judges_it(plant: Plant) -> None:
    root = plant(
        {
            ".gitignore": "*.bin\n/data/\n",
            "a.py": "",
            "a.bin": "",
            "data/sub/x": "",
            "data/in": "",
            "sub/.gitignore": "!keep.bin\n",
            "sub/keep.bin": "",
            "sub/other.bin": "",
            "env/pyvenv.cfg": "",
            "env/a.py": "",
            "old/a.py": "",
            "raw/x": "",
            ".env": "",
            "__pycache__/a.pyc": "",
            "run.yaml": "gpus: 1\ncommand: [x]\n",
        }
    )
    (root / "empty").mkdir()
    said: dict[str, Any] = {"include": ["data/in"], "exclude": ["old"], "link": ["raw", "data/sub"]}
    taken, _ = snapshot(root, **said)
    for path in (item.relative_to(root).as_posix() for item in root.rglob("*")):
        alone, walked = exclusion_of(root, path, **said), taken.exclusion(path)
        if (root / path).is_dir() and walked is None:
            continue  # a folder of which something travels
        assert alone == walked, path


def test_the_rule_that_keeps_a_path_back_in_words(plant: Plant) -> None:
    root = plant({".gitignore": "\ndata/\n", "data/a/b.bin": "", "x.log": ""})
    assert str(exclusion_of(root, "data/a/b.bin")) == "line 2 of `.gitignore` (`data/`)"
    assert str(exclusion_of(root, "x.log")) == "files of this name are never code"
    assert exclusion_of(root, "data").rule is SelectionRule.GITIGNORE
    assert exclusion_of(root, "nothing/here") is None


@pytest.mark.parametrize(
    "left",
    [
        "train.py~", ".train.py.swp", ".train.py.swo", "#train.py#", "core.1234", "._train.py",
        "Thumbs.db", ".nfs000000001a", ".coverage", ".coverage.host.12", "report.nsys-rep",
        ".DS_Store", "__pycache__/a.py", ".ipynb_checkpoints/a.ipynb", "mlruns/0/a", "a/x.log",
        "swanlog/run-20260101/a", "wandb/run-1/a", "dvclive/metrics.json", "dvclive/plots/a.tsv",
        "tb_logs/my_model/version_0/hparams.yaml", "csv/version_12/metrics.csv",
        "lightning_logs/version_0/hparams.yaml", "outputs/2026-01-02/03-04-05/.hydra/a.yaml",
    ],
)  # fmt: skip
def test_what_editors_trackers_and_systems_leave_is_no_code(plant: Plant, left: str) -> None:
    folder = left.rpartition("/")[0]
    beside = {
        "dvclive": ["metrics.json", "plots/a.tsv"],
        "dvclive/plots": ["../metrics.json"],
        "tb_logs/my_model/version_0": ["events.out.tfevents.1.host"],
        "csv/version_12": ["hparams.yaml"],
    }
    root = plant(
        {"train.py": "", left: "1"} | {f"{folder}/{one}": "1" for one in beside.get(folder, [])}
    )
    taken, findings = snapshot(root)
    assert not findings
    assert [entry.path for entry in taken.entries] == ["train.py"]


@pytest.mark.parametrize(
    "code",
    [
        "core.py", "core.1.py", "core/a.py", "a.swp.py", "data.swp", "dvclive/__init__.py",
        "swanlog/a.py", "tb_logs/a.py", "version_1/model.py", "version_1/hparams.yaml", "a.orig",
        "outputs/data.csv", "my.egg-info/PKG-INFO", "coverage.py", "desktop.py",
    ],
)  # fmt: skip
def test_what_only_looks_like_that_is_code(plant: Plant, code: str) -> None:
    taken, _ = snapshot(plant({code: "1"}))
    assert [entry.path for entry in taken.entries] == [code]


def test_the_lock_of_an_editor_that_leads_nowhere_is_no_code(plant: Plant) -> None:
    root = plant({"train.py": "", "train.py~": ""})
    (root / ".#train.py").symlink_to("me@host.1234:1700000000")
    taken, findings = snapshot(root)
    assert not findings
    assert [entry.path for entry in taken.entries] == ["train.py"]
    assert exclusion_of(root, "train.py~", include=["*~"]) is None
