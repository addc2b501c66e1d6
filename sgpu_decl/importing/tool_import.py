"""`sgpu import`: a file of another tool as the YAML of a run or project."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.config.other_tool_configs import tool_of
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import InvalidInput, SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.importing.air_workload import read_air
from sgpu_decl.importing.bundle import read_bundle
from sgpu_decl.importing.draft import written
from sgpu_decl.importing.dstack_task import read_dstack
from sgpu_decl.importing.foreign_file import ForeignFile, read_root
from sgpu_decl.importing.foreign_tool import FieldTranslation, ForeignTool, translated
from sgpu_decl.importing.skypilot_task import read_skypilot
from sgpu_decl.importing.translation import Fate
from sgpu_decl.system_errors import advice, error_text

_Translated = tuple[list[FieldTranslation], list[FieldTranslation]]


def _by_table(
    reader: Callable[[ForeignFile], tuple[ForeignTool, ForeignFile]],
) -> Callable[[ForeignFile], _Translated]:
    def read(file: ForeignFile) -> _Translated:
        tool, file = reader(file)
        return translated(tool, file.root, file)

    return read


TOOLS: Mapping[str, Callable[[ForeignFile], _Translated]] = {
    "air": _by_table(read_air),
    "bundle": read_bundle,
    "dstack": _by_table(read_dstack),
    "skypilot": _by_table(read_skypilot),
}
"""What `--from` names, and what reads such files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file of another tool, and the YAML that says the same.

    Attributes:
        tool: a key of `TOOLS`.
        text: the YAML of a run or project file, which is valid.
        fields: what became of each field of the file.
        defaults: what the tool does where the file says nothing, and sgpu would do otherwise.
        findings: warnings about the YAML.
    """

    tool: str
    file: str
    text: str
    fields: tuple[FieldTranslation, ...]
    defaults: tuple[FieldTranslation, ...]
    findings: tuple[Diagnostic, ...]

    def of(self, fate: Fate) -> tuple[FieldTranslation, ...]:
        return tuple(one for one in self.fields if one.translation.fate is fate)


def import_file(path: Path, *, tool: str | None = None, write: Path | None = None) -> ImportedFile:
    """Read a file of another tool. Nothing is executed.

    Args:
        tool: a key of `TOOLS`; by default it is found out.
        write: where the YAML is written, which must be a new file; paths in it start there.

    Raises:
        NotFound: the file is not there.
        InvalidInput: it is no file of a tool that sgpu knows, or says nothing that a run can do.
        SgpuError: it cannot be read, or the YAML cannot be written.
    """
    root = read_root(path)
    known = tool or tool_of(root)
    if known is None:
        raise InvalidInput(
            f"`{path}` may be a file of several tools, or of none that sgpu reads",
            hint=f"name its tool with `--from`: {', '.join(f'`{name}`' for name in TOOLS)}",
            code="unknown_tool",
        )
    if write is not None and write.exists():
        raise SgpuError(f"`{write}` exists", hint="name a new file", code="exists")
    file = ForeignFile(
        shown=os.fspath(path),
        folder=path.resolve().parent,
        target=(write or path).resolve().parent,
        root=root,
    )
    fields, defaults = TOOLS[known](file)
    done = written(fields, defaults, _header(path))
    if write is not None:
        try:
            write.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(write, done.text.encode(), mode=0o666)
        except OSError as error:
            raise SgpuError(
                f"`{write}` cannot be written: {error_text(error)}",
                hint=advice(error),
                code="unwritable",
            ) from None
    return ImportedFile(
        tool=known,
        file=os.fspath(path),
        text=done.text,
        fields=done.fields,
        defaults=done.defaults,
        findings=done.findings,
    )


def _header(path: Path) -> str:
    name = "".join(letter if letter.isprintable() else "?" for letter in path.name)
    return f"# From `{name}`, by `sgpu import`, which says what is changed or lost.\n"
