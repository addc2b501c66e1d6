"""Code trees, written as mappings of path to content."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.code.snapshot import Snapshot, snapshot
from sgpu_decl.model.owner import Owner
from tests.reading import clean

Plant = Callable[[Mapping[str, str]], Path]
STATE = Owner(path=None, lineage="lin", store="elsewhere:1")
LATER = time.time() + 10 * 3600


def take(root: Path) -> Snapshot:
    return clean(snapshot(root))


def objects(tmp_path: Path) -> list[Path]:
    """The objects of the store, by their paths."""
    return sorted(path for path in (tmp_path / "store/objects").rglob("*") if path.is_file())


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    def _plant(files: Mapping[str, str]) -> Path:
        root = tmp_path / "code"
        root.mkdir(exist_ok=True)
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return root

    return _plant


@pytest.fixture
def store(tmp_path: Path) -> CodeStore:
    return CodeStore(tmp_path / "store")
