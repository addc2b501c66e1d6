"""What is known of a file by its bytes, before it is parsed: whether it is a saved plan."""

from pathlib import Path

from sgpu_decl.regular_files import open_regular, read_regular

YAML_SUFFIXES = (".yaml", ".yml", ".json")
"""How the names of run and project files end."""


def holds_plan(path: Path) -> bool:
    """Whether a file is a plan and not JSON of another kind, which a run file may be too."""
    try:
        return is_saved_plan(path) and b'"format_version"' in read_regular(path)
    except OSError:
        return False


def is_saved_plan(path: Path) -> bool:
    """Whether a file is (or was meant to be) a saved plan, by its first characters.

    A run file may begin with a brace too. So where the name is that of one, the file counts as a
    plan if it begins with the first key of ours, or has the format's number (`-o json` of a plan).
    """
    try:
        with open_regular(path) as file:
            head = file.read(64).lstrip()
            if not head.startswith(b"{") or path.suffix not in YAML_SUFFIXES:
                return head.startswith(b"{")
            return b'"applyable"' in head or b'"format_version"' in head + file.read()
    except OSError:
        return False
