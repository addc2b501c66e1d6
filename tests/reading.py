"""Reading the text of a run or project file, and of a call, with nothing around it."""

from collections.abc import Mapping
from typing import Any, TypeVar

from sgpu_decl.config import file_reader
from sgpu_decl.config.call_config import declare_call
from sgpu_decl.config.file_reader import Overrides
from sgpu_decl.config.loaded import Loaded
from sgpu_decl.config.project_files import ReadIncluded, nothing_included, read_files
from sgpu_decl.config.state_reader import DeclaredState, read_state
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.jsonable import Json

_Read = TypeVar("_Read")


def clean(outcome: tuple[_Read | None, tuple[Diagnostic, ...]]) -> _Read:
    """What was read, where nothing was found to say."""
    read, findings = outcome
    assert findings == ()
    assert read is not None
    return read


def overridden(target: str | None = None, **fields: Any) -> Overrides:
    """Overrides of a command in an empty environment, outside of a git checkout."""
    around: dict[str, Any] = {"environ": {}, "git": dict, **fields}
    return Overrides(target=target, **around)


def read(
    text: str | bytes,
    file: str,
    *,
    read_included: ReadIncluded = nothing_included,
    **overrides: Any,
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    """What a text says. `overrides` are fields of `Overrides`."""
    return file_reader.read(read_files(text, file, read_included), overridden(**overrides))


def read_store(
    text: str, *, read_included: ReadIncluded = nothing_included, **overrides: Any
) -> tuple[DeclaredState | None, tuple[Diagnostic, ...]]:
    """Where a project file says that its state lies."""
    files, _ = read_files(text, "sgpu.yml", read_included)
    assert files is not None
    return read_state(files, overridden(**overrides))


def read_call(
    fields: Mapping[str, Json],
    project: str | bytes | None = None,
    *,
    name: str = "train",
    place: Place = Place("train.py", 7, 2),  # noqa: B008  a constant
    fallback: Mapping[str, Json] | None = None,
    spelled: Mapping[str, str] | None = None,
    captured: bool = False,
    read_included: ReadIncluded = nothing_included,
    **overrides: Any,
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    """The run of a function that is called, over the text of a project file."""
    return declare_call(
        fields,
        name=name,
        place=place,
        fallback=fallback or {},
        project=None if project is None else read_files(project, "sgpu.yml", read_included),
        overrides=overridden(**overrides),
        spelled=spelled,
        captured=captured,
    )
