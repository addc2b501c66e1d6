"""What the code of a run imports from outside."""

from pathlib import Path

import pytest

from sgpu_decl.code.code_packages import code_names, outside_imports
from sgpu_decl.code.sources import sources

TRAIN = """\
import json, torch.nn as nn
from peft import LoraConfig
import helpers
from . import nothing
from model.layers import block
try:
    import flash_attn
except ImportError:
    import slow_attention
finally:
    import closing
if TYPE_CHECKING:
    import hints
if __name__ == "__main__":
    import starting

def main():
    import wandb
    with contextlib.suppress(ImportError):
        import optional
    with open("x"):
        import opened
    for _ in ():
        import looped
"""


def write(root: Path, files: dict[str, str]) -> frozenset[str]:
    """Write files of code; the names that it has."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return code_names(files)


def imported(
    root: Path, names: frozenset[str], entrypoint: str = "train.py:main"
) -> dict[str, str]:
    found = outside_imports(sources(root, entrypoint), names)
    return {name: str(place) for name, place in found.items()}


def test_imports_count_that_are_bound_to_happen(tmp_path: Path) -> None:
    names = write(tmp_path, {"train.py": TRAIN, "helpers.py": ""})
    assert imported(tmp_path, names) == {
        "torch": "train.py:1:1",
        "peft": "train.py:2:1",
        "model": "train.py:5:1",
        "closing": "train.py:11:5",
        "wandb": "train.py:18:5",
        "opened": "train.py:22:9",
        "looped": "train.py:24:9",
    }
    assert imported(tmp_path, names, "train.py")["starting"] == "train.py:15:5"


def test_modules_of_the_code_are_followed(tmp_path: Path) -> None:
    files = {
        "train.py": "import helpers\nfrom model import layers\nimport model.heads\n",
        "helpers.py": "import numpy\nimport train\n",
        "unused.py": "import never\n",
        "model/__init__.py": "import scipy",
        "model/layers.py": "from . import deep\nfrom .deep import x\nfrom ..helpers import y\n",
        "model/deep.py": "import einops\n",
        "model/heads.py": "import timm\n",
    }
    names = write(tmp_path, files)
    assert imported(tmp_path, names) == {
        "numpy": "helpers.py:1:1",
        "scipy": "model/__init__.py:1:1",
        "einops": "model/deep.py:1:1",
        "timm": "model/heads.py:1:1",
    }
    followed = [source.shown for source in sources(tmp_path, "train.py")]
    assert followed[0] == "train.py"
    assert {*followed} == files.keys() - {"unused.py"}


def test_a_module_entrypoint_executes_the_packages_above_it(tmp_path: Path) -> None:
    files = {
        "app/__init__.py": "import yaml",
        "app/train.py": "import cv2\nimport beside\n",
        "app/beside.py": "import tqdm\n",
    }
    names = write(tmp_path, files)
    assert set(imported(tmp_path, names, "app.train:main")) == {"yaml", "cv2", "tqdm"}


def test_what_lies_anywhere_in_the_code_may_be_its_own(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import core\nimport data\nimport fast\n"})
    names = code_names(["train.py", "src/core/x.py", "lib/fast.so", "data/x.csv"])
    assert imported(tmp_path, names) == {}


@pytest.mark.parametrize("text", ["def broken(", "\x00", "(" * 100_000, "import a" * 2])
def test_a_file_that_is_no_python_imports_nothing(tmp_path: Path, text: str) -> None:
    assert imported(tmp_path, write(tmp_path, {"train.py": text})) == {}


def test_an_entrypoint_that_is_not_there_imports_nothing(tmp_path: Path) -> None:
    for entrypoint in ("gone.py", "gone.module:main", "../outside.py"):
        assert imported(tmp_path, frozenset(), entrypoint) == {}
