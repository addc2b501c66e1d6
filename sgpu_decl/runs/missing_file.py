"""The rule that excluded a file which ranks did not find, and which the project has."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.code.selection import exclusion_of
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.attempt_details import MissingFile
from sgpu_decl.model.jsonable import Json
from sgpu_decl.planning.needed_files import OUTSIDE_HINT, folder_hint, way_out
from sgpu_decl.planning.project_text import ProjectText

if TYPE_CHECKING:
    from sgpu_decl.code.selection import Exclusion

_MOST_FOLDERS = 20  # of one that ranks lack are looked into, and as many files of each
_MOST_FILES = 20


def with_ignore_rule(
    missing: MissingFile, spec: Mapping[str, Json], owner: Path, *, links: bool
) -> MissingFile:
    """Return a file that ranks did not find with the reason, if the project has it.

    Args:
        spec: the run, as it was launched.
        owner: its file.
        links: whether its backend knows `code.link`.
    """
    code = spec.get("code")
    rules: Mapping[str, Json] = code if isinstance(code, Mapping) else {}
    root = Path(os.path.abspath(owner.parent / str(rules.get("root") or ".")))
    path = missing.path
    if not (root / path).exists() and not path.startswith("../"):
        path = os.path.dirname(path)  # the program was to create a file in it
    try:
        reason, hint = _reason(root, path, rules, owner, links=links) or (None, None)
    except SgpuError:  # git does not say which files it tracks
        return missing
    return replace(missing, path=path if reason else missing.path, reason=reason, hint=hint)


def _reason(
    root: Path, path: str, rules: Mapping[str, Json], owner: Path, *, links: bool
) -> tuple[str, str] | None:
    whole = root / path
    if not path or not whole.exists():
        return None
    if path.startswith("../"):
        return "it lies outside of the code, and ranks work in a copy of the code", OUTSIDE_HINT
    judge = _judge(root, rules, owner)
    rule = judge(path)
    if whole.is_dir() and (rule is None or rule.pattern is None):
        nothing = rule or _first_left_out(root, path, judge)
        return (nothing.about(path), folder_hint(path)) if nothing is not None else None
    if rule is None:
        return "it came after the code was pinned", "apply again: the next attempt has it"
    hint = way_out(path, rule, whole, links=links)
    return f"excluded by {rule}", f"{folder_hint(path)}; {hint}" if whole.is_dir() else hint


def _judge(
    root: Path, rules: Mapping[str, Json], owner: Path
) -> "Callable[[str], Exclusion | None]":
    """What says of a path which rule excludes it."""
    return partial(
        exclusion_of,
        root,
        include=_texts(rules.get("include")),
        exclude=_texts(rules.get("exclude")),
        link=_texts(rules.get("link")),
        owners=ProjectText(owner).files(),
    )


def _first_left_out(
    root: Path, folder: str, judge: "Callable[[str], Exclusion | None]"
) -> "Exclusion | None":
    """The rule that excludes the first file of a folder of which nothing is code."""
    first: Exclusion | None = None
    for top, _, names in islice(os.walk(root / folder), _MOST_FOLDERS):
        for name in sorted(names)[:_MOST_FILES]:
            rule = judge(os.path.relpath(os.path.join(top, name), root))
            if rule is None:
                return None
            first = first or rule
    return first


def _texts(value: Json) -> Sequence[str]:
    return [str(item) for item in value] if isinstance(value, list) else ()
