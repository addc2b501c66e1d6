from typing import Any

from sgpu_decl.staging.selection import SelectionRule, exclusion_of
from sgpu_decl.staging.snapshot import snapshot
from tests.staging.conftest import Plant


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
