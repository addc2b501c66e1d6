"""The key `sealed` of a project file, read by itself: who applies a saved plan gives no variables,
and the rest of the file does not matter."""

from collections.abc import Callable, Mapping

from sgpu_decl.config.file_reader import with_options
from sgpu_decl.config.include import ReadIncluded
from sgpu_decl.config.project_files import read_files
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.text import yaml_nodes

__all__ = ["read_sealed"]

_KEY = "sealed"


def read_sealed(
    raw: bytes,
    file: str,
    *,
    target: str | None,
    environ: Mapping[str, str],
    git: Callable[[], Mapping[str, str]],
    read_included: ReadIncluded,
) -> tuple[bool | None, tuple[Diagnostic, ...]]:
    """Read whether a target takes sealed plans alone; see `file_reader.read` for the arguments.

    Returns:
        Whether it does, also where the value is neither true nor false; None and findings where
        the file cannot be parsed.
    """
    files, findings = read_files(raw, file, read_included)
    if files is None:
        return None, findings
    root, _, _ = with_options(files, target, (), (), environ, git, ())
    value = root.entries.get(_KEY)
    if value is None or yaml_nodes.is_nothing(value):
        return False, ()
    return not (isinstance(value, yaml_nodes.Scalar) and value.text.lower() == "false"), ()
