"""What is imported ahead is read from the source: its first imports, up to the first effect."""

from pathlib import Path

import pytest

from sgpu_decl.backends.preimports import cold_starts, warm_call, warm_start
from sgpu_decl.code.sources import sources
from sgpu_decl.rendering.spec import Entry, Warm

SCRIPT = Entry(kind="script", path="train.py")


def read(folder: Path, source: str, setting: str | tuple[str, ...] = "auto") -> Warm | None:
    (folder / "train.py").write_text(source)
    return warm_start(SCRIPT, folder, setting=setting, ranks=2)


def test_the_imports_at_the_top_are_taken_with_their_names(tmp_path: Path) -> None:
    source = (
        '"""Trains."""\n'
        "from __future__ import annotations\n"
        "import os, sys\n"
        "from typing import TYPE_CHECKING\n"
        "import mlflow\n"
        "from sgpu_decl import runtime\n"
        "import numpy as np\n"
        "SIZE: int = 4 * 2\n"
        "import torch, torch.nn as nn\n"
        "from torch.utils.data import DataLoader, Dataset\n"
        "if TYPE_CHECKING:\n    import heavy\n"
        "from torch.distributed.fsdp import *\n"
        "import mine\n"
        "from transformers import AutoModel\n"
    )
    assert read(tmp_path, source) == Warm(
        imports=(
            ("numpy", ()),
            ("torch", ()),
            ("torch.nn", ()),
            ("torch.utils.data", ("DataLoader", "Dataset")),
            ("torch.distributed.fsdp", ()),
        )
    )


@pytest.mark.parametrize(
    ("before", "stop"),
    [
        ("import os\nos.environ['HF_HOME'] = '/data'\n", "line 2, which may have an effect"),
        ("import mine\n", "`mine`, which is not known to be harmless ahead"),
        ("from . import mine\n", "`.`, which is not known to be harmless ahead"),
        ("from .mine import x\n", "`.mine`, which is not known to be harmless ahead"),
        ("print('hello')\n", "line 1, which may have an effect"),
        ("def f(): pass\n", "line 1, which may have an effect"),
        ("try:\n    import apex\nexcept ImportError: pass\n", "line 1, which may have an effect"),
        ("N = int('1')\n", "line 1, which may have an effect"),
    ],
)
def test_what_may_have_an_effect_ends_them_and_is_named(
    tmp_path: Path, before: str, stop: str
) -> None:
    found = read(tmp_path, before + "import torch\n")
    assert found == Warm(refused=f"`train.py` imports torch after {stop}")


def test_the_training_example_is_warm() -> None:
    folder = Path(__file__).parents[2] / "examples" / "fsdp"
    entry = Entry(kind="file_function", path="train.py", function="main")
    found = warm_start(entry, folder, setting="auto", ranks=2)
    assert found is not None
    assert "torch.distributed.checkpoint" in [name for name, _ in found.imports]


@pytest.mark.parametrize("source", ["import numpy\nprint()\n", "", "import mine\n", "not Python"])
def test_without_torch_nothing_speaks_for_a_warm_start(tmp_path: Path, source: str) -> None:
    assert read(tmp_path, source) is None


def test_off_one_rank_commands_and_pickles_start_cold(tmp_path: Path) -> None:
    assert read(tmp_path, "import torch", "off") is None
    assert warm_start(SCRIPT, tmp_path, setting="auto", ranks=1) is None
    shell = Entry(kind="shell", shell="python train.py")
    assert warm_start(shell, tmp_path, setting="auto", ranks=2) is None
    assert warm_start(Entry(kind="pickle"), tmp_path, setting="auto", ranks=2) is None
    missing = Entry(kind="script", path="gone.py")
    assert warm_start(missing, tmp_path, setting="auto", ranks=2) is None


def test_modules_that_were_asked_for_are_required(tmp_path: Path) -> None:
    wanted = Warm(imports=(("torch", ()), ("mine.data", ())), required=True)
    assert read(tmp_path, "print()", ("torch", "mine.data")) == wanted


def test_a_module_is_read_after_the_packages_around_it(tmp_path: Path) -> None:
    inner = tmp_path / "pack" / "inner"
    inner.mkdir(parents=True)
    (inner / "train.py").write_text("import torch\ndef main(): pass\n")
    entry = Entry(kind="module_function", module="pack.inner.train", function="main")
    assert warm_start(entry, tmp_path, setting="auto", ranks=2) == Warm(imports=(("torch", ()),))
    (tmp_path / "pack" / "__init__.py").write_text("import numpy\n")
    found = warm_start(entry, tmp_path, setting="auto", ranks=2)
    assert found == Warm(imports=(("numpy", ()), ("torch", ())))
    (inner / "__init__.py").write_text("import torch\n")
    found = warm_start(entry, tmp_path, setting="auto", ranks=2)
    assert found == Warm(imports=(("numpy", ()), ("torch", ())))
    (tmp_path / "pack" / "__init__.py").write_text("setup()\n")
    assert warm_start(entry, tmp_path, setting="auto", ranks=2) is None


def test_one_rank_alone_imports_ahead_where_later_calls_use_it() -> None:
    loads = frozenset({"torch", "numpy"})
    wanted = Warm(imports=(("torch", ()), ("numpy", ())))
    assert warm_call(loads, setting="auto", ranks=1) is None
    assert warm_call(loads, setting="auto", ranks=1, kept=True) == wanted
    assert warm_call(loads, setting="off", ranks=1, kept=True) is None
    assert warm_call(frozenset({"numpy"}), setting="auto", ranks=1, kept=True) is None


INSIDE = "import os\ndef main():\n    from torch import nn\n    return nn\n"


@pytest.mark.parametrize("entrypoint", ["train.py", "train.py:main", "train:main"])
def test_torch_that_a_function_imports_starts_cold(tmp_path: Path, entrypoint: str) -> None:
    (tmp_path / "train.py").write_text(INSIDE)
    (found,) = cold_starts(sources(tmp_path, entrypoint), 8)
    assert (found.code, str(found.place)) == ("torch_imported_late", "train.py:3:5")
    assert "each of the 8" in found.summary
    assert "`launch: {warm: [torch]}`" in str(found.hint)
    assert list(cold_starts(sources(tmp_path, entrypoint), 1)) == []


@pytest.mark.parametrize(
    "source",
    [
        f"import torch\n{INSIDE}",
        f"try:\n    import torch\nexcept OSError: ...\n{INSIDE}",
        "",
        "def",
    ],
)
def test_torch_that_the_file_imports_is_no_cold_start(tmp_path: Path, source: str) -> None:
    (tmp_path / "train.py").write_text(source)
    assert list(cold_starts(sources(tmp_path, "train.py:main"), 8)) == []
