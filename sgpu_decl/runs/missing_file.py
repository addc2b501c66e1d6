"""The rule that excluded a file which ranks did not find, and which the project has."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sgpu_decl.model.attempt_details import MissingFile
from sgpu_decl.model.jsonable import Json


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
    reason, hint = _reason(root, missing.path, rules, owner, links=links) or (None, None)
    return replace(missing, reason=reason, hint=hint)


def _reason(
    root: Path, path: str, rules: Mapping[str, Json], owner: Path, *, links: bool
) -> tuple[str, str] | None:
    from sgpu_decl.facts.included_files import files_of
    from sgpu_decl.facts.needed_files import OUTSIDE_HINT, way_out
    from sgpu_decl.staging.selection import exclusion_of

    whole = root / path
    if not whole.exists():
        return None
    if path.startswith("../"):
        return "it lies outside of the code, and ranks work in a copy of the code", OUTSIDE_HINT
    rule = exclusion_of(
        root,
        path,
        include=_texts(rules.get("include")),
        exclude=_texts(rules.get("exclude")),
        link=_texts(rules.get("link")),
        owners=files_of(owner),
    )
    if rule is None:
        return "it came after the code was pinned", "apply again: the next attempt has it"
    return f"excluded by {rule}", way_out(path, rule, whole, links=links)


def _texts(value: Json) -> Sequence[str]:
    return [str(item) for item in value] if isinstance(value, list) else ()
