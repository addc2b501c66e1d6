"""Templates to text, with values of ours alone; and `_air.py`, the entrypoint of a rank, from its
template."""

import difflib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from sgpu_decl.distribution import shipped_folder
from sgpu_decl.model.jsonable import Json
from sgpu_decl.rendering.spec import Entry

if TYPE_CHECKING:
    from jinja2 import Environment


def render(folder: str, template: str, **values: str | bool | Sequence[object]) -> str:
    """Return the text of a template, to the byte the same for the same values.

    Raises:
        jinja2.UndefinedError: a value that it names is missing.
    """
    return _environment(folder).get_template(template).render(**values)


@cache
def _environment(folder: str) -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(shipped_folder("templates") / folder),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # source of programs, and only values of ours go in
    )


_PLAIN = re.compile(r"[A-Za-z0-9_./:<>-]{1,200}")
_ANY_SPEC = "0" * 64


def declared_entry(config: Mapping[str, Json]) -> Entry:
    """What `entrypoint` or `command` of a run declares, without its arguments; paths as written."""
    command = config.get("command")
    if isinstance(command, str):
        return Entry(kind="shell", shell=command)
    if isinstance(command, list | tuple):
        return Entry(kind="command", command=tuple(map(str, command)))
    target, _, function = str(config.get("entrypoint") or "").partition(":")
    if not target.endswith(".py"):
        return Entry(kind="module_function", module=target, function=function)
    if not function:
        return Entry(kind="script", path=target)
    return Entry(kind="file_function", path=target, function=function)


def render_air(spec_sha256: str, entry: Entry) -> str:
    """Return the Python source of `_air.py` for the spec with that SHA-256 (64 hex digits).

    The same arguments give the same bytes. No text of the user's goes into it but the name of the
    entry, and that only where it is plain.

    Raises:
        ValueError: the checksum is not one.
    """
    if len(spec_sha256) != 64 or not set(spec_sha256) <= set("0123456789abcdef"):
        raise ValueError(f"not a SHA-256 in hex: {spec_sha256!r}")
    return render("entrypoints", "_air.py.j2", spec_sha256=spec_sha256, entry=_described(entry))


def air_diff(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[str]:
    """The lines of `_air.py` that differ between two configs of a run, but for the checksum: each
    begins with `-` or `+`."""
    old, new = (
        render_air(_ANY_SPEC, declared_entry(config)).splitlines() for config in (before, after)
    )
    return [line for line in difflib.ndiff(old, new) if line[0] in "-+"]


def _described(entry: Entry) -> str:
    name = entry.call.name if entry.call is not None else entry.path or entry.module or ""
    if entry.function is not None:
        name += f":{entry.function}"
    kind = "call" if entry.call is not None else entry.kind
    return f"{kind} {name}" if _PLAIN.fullmatch(name) else kind
