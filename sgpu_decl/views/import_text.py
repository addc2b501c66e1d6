"""What became of the fields of another tool's file, as text and as JSON."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgpu_decl.model.jsonable import Json
from sgpu_decl.views.terminal import count, json_text

if TYPE_CHECKING:
    from sgpu_decl.importing.foreign_tool import FieldTranslation
    from sgpu_decl.importing.tool_import import ImportedFile
    from sgpu_decl.importing.translation import Keys

_FATES = ("carried", "changed", "lost")
_LONGEST = 30  # characters of a value
_WIDTH = max(map(len, (*_FATES, "default")))


def import_lines(imported: "ImportedFile") -> Iterator[str]:
    """A line for each field, the lost ones last, then the defaults, and how many there are."""
    for fate in _FATES:
        for one in imported.fields:
            if one.translation.fate == fate:
                yield _line(fate, one)
    for one in imported.defaults:
        yield _line("default", one)
    for finding in imported.findings:
        yield str(finding)
    fates = [str(one.translation.fate) for one in imported.fields]
    counts = ", ".join(f"{fates.count(fate)} {fate}" for fate in _FATES)
    yield f"{imported.file}: {counts}; {count(len(imported.defaults), 'default')} of the tool"


def _line(word: str, one: "FieldTranslation") -> str:
    said = one.translation
    theirs = ".".join(one.path)
    line = f"{word.ljust(_WIDTH)}  {theirs}"
    if word == "carried" and said.puts:
        ours = ", ".join(_targets(one))
        line += f" -> {ours}" if ours != theirs else ""
    elif said.puts:
        line += f" -> {', '.join(map(_set, said.puts))}"
    why = "; ".join(filter(None, (said.note, said.hint)))
    return line + (f"{'; ' if said.puts else ': '}{why}" if why else "")


def _set(put: "tuple[Keys, Json]") -> str:
    """A field of ours, with its value if that is short."""
    path, value = put
    field, text = ".".join(path).removesuffix(".+"), json_text(value)
    return field if len(text) > _LONGEST or "\\n" in text else f"{field} = {text}"


def _targets(one: "FieldTranslation") -> list[str]:
    """The paths of our fields; members of a list are its."""
    puts = (path[:-1] if path[-1] == "+" else path for path, _ in one.translation.puts)
    return [*dict.fromkeys(".".join(path) for path in puts)]


def import_json(imported: "ImportedFile") -> dict[str, Json]:
    return {
        "tool": imported.tool,
        "file": imported.file,
        "text": imported.text,
        "fields": [_field(one) for one in imported.fields],
        "defaults": [_default(one) for one in imported.defaults],
        "findings": [one.to_json() for one in imported.findings],
    }


def _default(one: "FieldTranslation") -> dict[str, Json]:
    to: list[Json] = [*_targets(one)]
    return {"field": ".".join(one.path), "to": to, "note": one.translation.note}


def _field(one: "FieldTranslation") -> dict[str, Json]:
    return {
        **_default(one),
        "fate": str(one.translation.fate),
        "hint": one.translation.hint,
        "file": one.place.file if one.place else None,
        "line": one.place.line if one.place else None,
        "column": one.place.column if one.place else None,
    }
