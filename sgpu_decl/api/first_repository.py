"""The first files of a repository that plans in pull requests and applies after merges: those of
`examples/gitops`."""

import shlex
from pathlib import Path

from sgpu_decl.api.first_files import FirstFiles, project_name, write_new
from sgpu_decl.distribution import shipped_folder
from sgpu_decl.rendering.first_file import yaml_text

_ROOT = "sgpu.yml"
_README = "README.md"
_NAMED = "project: {name: gitops}"
_SCHEMAS = "../../schemas/"  # of the checkout, from the example
_MADE = frozenset({".sgpu", "__pycache__"})  # by sgpu and Python, where the example was tried


def write_first_repository(folder: Path, *, name: str | None) -> FirstFiles:
    """Write the example into `folder`, with the schemas that its files name beside them.

    Args:
        name: of the project.

    Raises:
        Usage: a project cannot have this name.
        SgpuError: a file is there already, or cannot be written.
    """
    name = project_name(folder, name)
    source, schemas = shipped_folder("examples/gitops"), shipped_folder("schemas")
    files: dict[Path, str] = {}
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and _MADE.isdisjoint(relative.parts):
            text = path.read_text(encoding="utf-8")
            files[folder / relative] = text.replace(_SCHEMAS, "schemas/")
    files[folder / _ROOT] = files[folder / _ROOT].replace(
        _NAMED, f"project: {{name: {yaml_text(name)}}}"
    )
    files[folder / _README] = _readme(files[folder / _README], name)
    for form in ("project", "run"):
        schema = f"{form}.v1.schema.json"
        files[folder / "schemas" / schema] = (schemas / schema).read_text(encoding="utf-8")
    write_new(files)
    return FirstFiles(name=name, file=folder / _ROOT, written=tuple(files), required=())


def _readme(text: str, name: str) -> str:
    """The README of the new repository, which takes the project for its name on the host."""
    return text.replace("--name vision", f"--name {shlex.quote(name)}").replace(
        "team/vision", f"YOUR-TEAM/{name}"
    )
