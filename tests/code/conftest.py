"""Code trees, written as mappings of path to content."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sgpu_decl.code.code_store import CodeStore

Plant = Callable[[Mapping[str, str]], Path]


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
