"""Files of other tools, imported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.importing.foreign_file import plain
from sgpu_decl.importing.tool_import import ImportedFile, import_file
from sgpu_decl.importing.translation import Fate
from sgpu_decl.text.yaml_reader import load_file
from tests.support import some


class Imported:
    """An imported file: its YAML as values, and what became of its fields."""

    def __init__(self, imported: ImportedFile) -> None:
        self.file = imported
        document, _ = load_file(imported.text, "imported.yaml")
        self.yaml: Any = plain(some(document).root)
        self.fates = {".".join(one.path): one.translation.fate for one in imported.fields}
        self.notes = {
            ".".join(one.path): one.translation.note or ""
            for one in (*imported.fields, *imported.defaults)
        }
        self.hints = {".".join(one.path): one.translation.hint for one in imported.fields}
        self.defaults = {".".join(one.path) for one in imported.defaults}

    def of(self, fate: Fate) -> set[str]:
        return {path for path, one in self.fates.items() if one is fate}


Import = Callable[..., Imported]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Writes a file of another tool, and files beside it, and imports it."""

    def write(text: str, name: str = "theirs.yaml", **options: Any) -> Imported:
        path = tmp_path / name
        path.write_text(text)
        return Imported(import_file(path, **options))

    return write
