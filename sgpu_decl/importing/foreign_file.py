"""A file of another tool, and the fields in it."""

import os
from dataclasses import field
from pathlib import Path

from sgpu_decl.code.repository import repository_top
from sgpu_decl.diagnostics.diagnostic import has_errors
from sgpu_decl.errors import InvalidInput, SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Json
from sgpu_decl.planning.project_text import invalid_file, read_bytes
from sgpu_decl.regular_files import is_below
from sgpu_decl.text.file_limits import PROJECT_FILE
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Sequence, is_nothing, resolve
from sgpu_decl.text.yaml_reader import load

_LARGEST = 1 << 20  # bytes of a script that becomes a command


def read_root(path: Path) -> Mapping:
    """The values of a YAML file.

    Raises:
        NotFound: it is not there.
        InvalidInput: it is no YAML of one mapping.
        SgpuError: it cannot be read.
    """
    document, findings = load(read_bytes(path), os.fspath(path), limits=PROJECT_FILE)
    if document is None or has_errors(findings):
        raise invalid_file(os.fspath(path), findings)
    return document.root


def plain(node: Node) -> Json:
    """A value as YAML 1.2 understands it."""
    if isinstance(node, Mapping):
        return {key: plain(below) for key, below in node.entries.items()}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return resolve(node.text) if node.plain else node.text


def at(node: Node | None, path: str) -> Node | None:
    """The value at a dotted path; None where there is none, or nothing in it."""
    for key in path.split("."):
        if isinstance(node, Sequence):
            node = node.items[int(key)] if key.isdecimal() and int(key) < len(node.items) else None
        else:
            node = node.entries.get(key) if isinstance(node, Mapping) else None
    return None if is_nothing(node) else node


def text_at(node: Node | None, path: str) -> str | None:
    """A scalar as it is written."""
    found = at(node, path)
    return found.text if isinstance(found, Scalar) else None


class NotOneValue(Exception):
    """A list or a mapping stands where a rule wants text; the field is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """`folder` is where its paths start, and `target` the folder of the YAML that is written."""

    shown: str
    folder: Path
    target: Path
    root: Mapping

    def relative(self, path: str) -> str:
        """A path of the file as the YAML says it."""
        if os.path.isabs(path):
            return path
        return Path(os.path.relpath(self.folder / path, self.target)).as_posix()

    def may_name(self, path: Path) -> bool:
        """Whether a file may be read: somebody else's must not show other files of this user."""
        top = repository_top(self.folder) or self.folder
        return is_below(os.path.realpath(path), os.path.realpath(top))

    def text_of(self, path: str) -> str | None:
        """The text of a file that the file names; None where it is not here."""
        found = self.folder / path
        if not found.is_file() or not self.may_name(found) or found.stat().st_size > _LARGEST:
            return None
        try:
            return read_bytes(found).decode()
        except (SgpuError, UnicodeDecodeError):
            return None

    def refused(self, why: str, hint: str) -> InvalidInput:
        """The error of a file that sgpu has no run for."""
        return InvalidInput(f"`{self.shown}` {why}", hint=hint, code="not_importable")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignField:
    """One field. `path` has the keys of mappings and the indexes of lists."""

    path: tuple[str, ...]
    node: Node
    file: ForeignFile
    block: Mapping = field(repr=False)
    """The block that the table is about: the root of the file, or a task in it."""

    @property
    def key(self) -> str:
        return self.path[-1]

    @property
    def value(self) -> Json:
        return plain(self.node)

    @property
    def text(self) -> str:
        """One value as it is written.

        Raises:
            NotOneValue: it is a list or a mapping.
        """
        if not isinstance(self.node, Scalar):
            raise NotOneValue
        return self.node.text

    @property
    def number(self) -> int | float | None:
        found = self.value
        return None if isinstance(found, bool) or not isinstance(found, int | float) else found

    def beside(self, path: str) -> str | None:
        """The text of another field of the block."""
        return text_at(self.block, path)
