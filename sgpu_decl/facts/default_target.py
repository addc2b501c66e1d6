"""The target that a project file names for commands that choose none: `default: true`."""

import re
from pathlib import Path

from sgpu_decl.facts.file_kind import MOST_BYTES
from sgpu_decl.model.target import misnamed
from sgpu_decl.regular_files import open_regular

__all__ = ["default_target"]

_MAY_BE_DEFAULT = (
    re.compile(rb"""default["']?[ \t]*:[ \t]*(?:[tT]rue|TRUE|[&*!|>#\r\n]|$)"""),
    re.compile(rb"""\?[ \t]+["']?default"""),
)
"""What each spelling of `default: true` has. Commands that read no file parse it only then."""


def default_target(file: Path, shown: str) -> str | None:
    """The target with `default: true` in a project file; `None` if no target has it, or if the file
    cannot be read: whoever reads it later says so.

    Raises:
        InvalidInput: the file is no YAML, so nobody knows.
    """
    try:
        with open_regular(file) as opened:
            content = opened.read(MOST_BYTES)
    except OSError:
        return None
    if not any(spelling.search(content) for spelling in _MAY_BE_DEFAULT):
        return None
    from sgpu_decl.config.target_chain import defaults_among
    from sgpu_decl.text.file_limits import is_project, limits_for
    from sgpu_decl.text.yaml_nodes import Mapping
    from sgpu_decl.text.yaml_reader import load

    document, findings = load(content, shown, limits=limits_for(content, shown))
    if document is None:
        from sgpu_decl.facts.project_file import invalid_file

        raise invalid_file(shown, findings)
    targets = document.root.entries.get("targets")
    if not isinstance(targets, Mapping) or not is_project(document.root, shown):
        return None
    names = defaults_among(targets.entries)
    return next((name for name in names if misnamed(name) is None), None)
