"""The first files of a user: a run file or a project file, its schema, and a script if none is
named."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from sgpu_decl.code.script_arguments import entry_arguments, function_arguments
from sgpu_decl.code.selection import SCHEMA_ID
from sgpu_decl.code.sources import parse_source
from sgpu_decl.config.entry import is_entrypoint
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.distribution import shipped_folder
from sgpu_decl.errors import InvalidInput, NotFound, SgpuError, Usage
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.gpus.devices import read_devices
from sgpu_decl.model.address import NAME
from sgpu_decl.model.script_argument import EntryArguments
from sgpu_decl.planning.location import current_folder
from sgpu_decl.rendering.first_file import first_file, first_project, yaml_text
from sgpu_decl.rendering.run_file import name_of
from sgpu_decl.system_errors import advice, error_text

_HEAD = 200  # characters of a schema in which its id stands
_ROOT = "sgpu.yml"
_README = "README.md"
_NAMED = "project: {name: gitops}"
_SCHEMAS = "../../schemas/"  # of the checkout, from the example
_MADE = frozenset({".sgpu", "__pycache__"})  # by sgpu and Python, where the example was tried


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFiles:
    """What was written. `file` describes the run, and `required` names the arguments that have no
    value yet."""

    name: str
    file: Path
    written: tuple[Path, ...]
    required: tuple[str, ...]


def write_first_files(
    folder: Path, *, name: str | None, script: str | None, project: bool
) -> FirstFiles:
    """Write a run file, or a project file with two targets, into `folder`.

    Args:
        name: of the run, or of the project.
        script: `FILE.py` or `FILE.py:FUNCTION` that the run starts; by default a new one.

    Raises:
        Usage: the name is none, or the script does not lie in the folder.
        NotFound: there is no such script or function.
        InvalidInput: the script is not Python.
        SgpuError: a file is there already, or cannot be written.
    """
    _refuse_file(folder)
    new_files: dict[Path, str] = {}
    if script is None:
        path, sample = "train.py", shipped_folder("templates") / "init" / "train.py"
        new_files[folder / path] = sample.read_text(encoding="utf-8")
        entry = _entry(sample, "main")
    else:
        path, function = _inside(folder, script)
        entry = _entry(Path(script.partition(":")[0]), function)
    stem = name_of([path])
    form = "project" if project else "run"
    own_name = name or (stem if script is not None and not project else None)
    own_name = _checked(own_name or _folder_name(folder), form)
    file = folder / ("sgpu.yml" if project else "run.yaml")
    schema = f"schemas/{form}.v1.schema.json"
    if project:
        text = first_project(schema=schema, name=own_name, run=stem, path=path, entry=entry)
    else:
        gpus, type_ = (2, "CPU") if script is None else (1, _gpu_type())
        text = first_file(
            schema=schema, name=own_name, gpus=gpus, type_=type_, path=path, entry=entry
        )
    new_files = {file: text, **new_files}
    _refuse_existing(new_files)
    shipped = (shipped_folder("schemas") / f"{form}.v1.schema.json").read_text(encoding="utf-8")
    if not _is_schema(folder / schema):
        new_files[folder / schema] = shipped
        _refuse_existing(new_files)
    _write(new_files)
    required = tuple(one.name for one in entry.arguments if one.required and one.given)
    return FirstFiles(name=own_name, file=file, written=tuple(new_files), required=required)


def project_name(folder: Path, name: str | None) -> str:
    """The name of a new project in a folder: `name`, else that of the folder.

    Raises:
        Usage: a project cannot have this name.
        SgpuError: the folder is a file.
    """
    _refuse_file(folder)
    return _checked(name or _folder_name(folder), "project")


def write_new(files: Mapping[Path, str]) -> None:
    """Write files that are not there yet.

    Raises:
        SgpuError: one is there already, or cannot be written.
    """
    _refuse_existing(files)
    _write(files)


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise SgpuError(
            f"`{folder}` is a file, not a folder", hint="name another folder", code="exists"
        )


def _checked(name: str, form: str) -> str:
    if not re.fullmatch(NAME, name):
        raise Usage(
            f"`{name}` is not a name for a {form}: letters, digits, `_` and `-`, at most 100"
        )
    return name


def _inside(folder: Path, script: str) -> tuple[str, str | None]:
    """The path of a script relative to the folder, and its function."""
    file, _, function = script.partition(":")
    if not Path(file).is_file():
        raise NotFound(f"there is no file `{file}`", hint="name a script: `--from train.py`")
    real = Path(file).resolve()
    if not real.is_relative_to(folder.resolve()):
        raise Usage(
            f"`{file}` is not in the folder `{folder}`",
            hint="name a folder above it: `sgpu init DIR --from DIR/train.py`",
        )
    path = real.relative_to(folder.resolve()).as_posix()
    if not is_entrypoint(f"{path}:{function}" if function else path):
        raise Usage(f"`{script}` is not a script", hint="name `FILE.py` or `FILE.py:FUNCTION`")
    return path, function or None


def _entry(file: Path, function: str | None) -> EntryArguments:
    import ast

    try:
        tree = parse_source(file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput(f"`{file}` is not valid Python: {error}") from None
    if function is None:
        return entry_arguments(tree)
    defined = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    if function not in defined:
        close = nearest(function, sorted(defined))
        raise NotFound(
            f"`{file}` defines no function `{function}`",
            hint=f"did you mean `{close}`?" if close else "name one that it defines",
        )
    arguments = function_arguments(defined[function])
    if arguments is None:
        raise Usage(
            f"`{function}` takes arguments by position only, and a run file gives names",
            hint="remove the `/` from its signature",
        )
    return arguments


def _refuse_existing(files: Mapping[Path, str]) -> None:
    taken = next((path for path in files if path.exists() or path.is_symlink()), None)
    if taken is None:
        return
    hint = "nothing was written: use another folder, `sgpu init DIR`"
    if taken.suffix == ".py":
        hint += f"; or start this script: `sgpu init --from {taken}`"
    raise SgpuError(f"there is a `{taken}` already", hint=hint, code="exists")


def _write(files: Mapping[Path, str]) -> None:
    """Write the files once all their folders are there."""
    try:
        for each in files:
            each.parent.mkdir(parents=True, exist_ok=True)
        for each, content in files.items():
            each.write_text(content, encoding="utf-8")
    except OSError as error:
        raise SgpuError(
            f"the files of `sgpu init` cannot be written: {error_text(error)}",
            hint=advice(error),
            code="unwritable",
        ) from None


def _is_schema(file: Path) -> bool:
    """Whether a file is a schema of sgpu, which is left alone."""
    try:
        with file.open(encoding="utf-8") as opened:
            return SCHEMA_ID in opened.read(_HEAD)
    except (OSError, UnicodeDecodeError):
        return False


def _folder_name(folder: Path) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", (current_folder() / folder).resolve().name).strip("-_")
    return plain[:100] or "train"


def _gpu_type() -> str:
    return "GPU" if read_devices().visible else "CPU"


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
