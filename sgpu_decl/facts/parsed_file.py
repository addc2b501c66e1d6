"""What a run or project file says before it is validated: commands that look at a state need no
pydantic."""

from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.facts.file_kind import holds_plan
from sgpu_decl.model.target import misnamed
from sgpu_decl.regular_files import open_regular

if TYPE_CHECKING:
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.text.yaml_nodes import Document

__all__ = ["default_target", "parsed"]

_MOST_BYTES = 16 << 20  # more than a file may have


def parsed(file: Path, shown: str, key: str) -> "tuple[Document | None, tuple[Diagnostic, ...]]":
    """A file without those that it includes; or else why it is no YAML, if it may say what `key`
    is. Neither if it is not there, cannot be read, or is a saved plan: whoever needs it says so."""
    if not file.is_file() or holds_plan(file):
        return None, ()
    from sgpu_decl.text.yaml_reader import load_file

    try:
        with open_regular(file) as opened:
            content = opened.read(_MOST_BYTES)
    except OSError:
        return None, ()
    document, findings = load_file(content, shown)
    return document, findings if document is None and key.encode() in content else ()


def default_target(file: Path, shown: str) -> str | None:
    """The target that a project file names for commands that choose none: `default: true`; `None`
    if no target has it, or if the file cannot be read.

    Raises:
        InvalidInput: the file is no YAML, so nobody knows.
    """
    document, findings = parsed(file, shown, "default")
    if findings:
        from sgpu_decl.facts.project_file import invalid_file

        raise invalid_file(shown, findings)
    if document is None:
        return None
    from sgpu_decl.config.target_chain import defaults_among
    from sgpu_decl.text.file_limits import is_project
    from sgpu_decl.text.yaml_nodes import Mapping

    targets = document.root.entries.get("targets")
    if not isinstance(targets, Mapping) or not is_project(document.root, shown):
        return None
    names = defaults_among(targets.entries)
    return next((name for name in names if misnamed(name) is None), None)
