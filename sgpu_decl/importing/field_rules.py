"""The rules that the tables of several tools share."""

import re

from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.diagnostics.amounts import read_duration, written_duration
from sgpu_decl.importing.foreign_file import ForeignField
from sgpu_decl.importing.foreign_tool import Rule
from sgpu_decl.importing.translation import NEXT, Translation, carried, changed, lost, put
from sgpu_decl.model.backend_kinds import only_kind
from sgpu_decl.model.permission_names import OWN_HOLDERS, OWN_LEVELS

_ONE_GPU = re.compile(r"GPU_1x(.+)")
_VERSION = re.compile(
    r"(?:workspace-base-environments/)?databricks_ai_v(\d+)|(?:CLIENT-GPU-)?(\d+)"
)

NO_CODE = put("code.exclude", ["*"])
"""No file is code."""


def to(field: str) -> Rule:
    """A value that is carried as it is."""
    return lambda one: carried(put(field, one.value))


def as_text(field: str) -> Rule:
    """A text, as it is written."""
    return lambda one: carried(put(field, one.text.strip()))


def member_of(field: str) -> Rule:
    """A text of a mapping, by its key there."""
    return lambda one: carried(((*field.split("."), one.key), one.text))


def left(note: str, hint: str | None = None) -> Rule:
    """A field that is lost."""
    return lambda _: lost(note, hint)


def says_nothing(_: ForeignField) -> Translation:
    """A field that asks for what sgpu does anyway."""
    return carried()


def name_of(one: ForeignField) -> Translation:
    name = run_name(one.text)
    if name == one.text:
        return carried(put("name", name))
    return changed(f"`{one.text}` is no name of a run", put("name", name))


def run_name(text: str) -> str:
    """The name of a run that is nearest to a text."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")[:100] or "run"


def name_of_file(one: ForeignField) -> Translation:
    """Of a file that names nothing."""
    stem = re.split(r"[/\\]", one.file.shown)[-1].partition(".")[0]
    return changed("the name of the file", put("name", run_name(stem)))


def secret_of_user(one: ForeignField) -> Translation:
    """A variable whose value the user's shell has."""
    return changed(
        f"sgpu reads it from your environment at launch: `export {one.key}=…` before",
        (("env", "secrets", one.key), f"env:{one.key}"),
    )


def scope_and_key(one: ForeignField) -> Translation:
    return carried((("env", "secrets", one.key), f"databricks:{one.text}"))


def platform() -> str:
    """The backend for what runs on the platform of `air` and of bundles."""
    return only_kind("has bundles", lambda kind: kind.bundle).name


def on_platform(_: ForeignField) -> Translation:
    return carried(put("backend.kind", platform()))


def accelerator(one: ForeignField) -> Translation:
    """`GPU_8xH100` and the like, or the older `h100_80gb`."""
    gpu_type = GpuType.find(one.text)
    count = one.beside(".".join((*one.path[:-1], "num_accelerators"))) or one.beside(
        ".".join((*one.path[:-1], "accelerator_count"))
    )
    if gpu_type is None:
        return changed(f"sgpu knows no `{one.text}`", put("type", "GPU"), hint="write `type`")
    single = _ONE_GPU.fullmatch(one.text)
    if single and gpu_type.name != "A10" and (count or "1") != "1":
        return changed(
            "sgpu takes nodes of 8 GPUs where there are so many, and refuses other numbers over 1",
            put("type", str(gpu_type)),
        )
    if gpu_type.node is None:
        return changed("the older name of a GPU in a node pool", put("type", str(gpu_type)))
    return carried(put("type", one.text))


def base_of(text: str) -> str | None:
    """A base environment by the platform's names of its version."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        return text if text.startswith(("workspace-base-environments/", "/")) else None
    return f"ai-{match[1]}" if match[1] else f"gpu-{match[2]}"


def version(one: ForeignField) -> Translation:
    base = base_of(one.text)
    if base is None:
        return lost(f"`{one.text}` is no version of the environment", "write `env: {base: …}`")
    return carried(put("env.base", base))


def requirement(one: ForeignField) -> Translation:
    """A line that the platform gives to its installer, as sgpu lets it do, too."""
    text = one.text.strip()
    if text.startswith(("./", "../")) or (text.endswith(".whl") and not text.startswith("/")):
        return lost(
            "the platform installs the packages, and this one lies here",
            "copy it to a volume, and write its path: `/Volumes/…`",
        )
    return carried((("env", "dependencies", NEXT), text))


def priority_class(one: ForeignField) -> Translation:
    return carried(put("priority", one.text.strip().lower()))


def grant(one: ForeignField) -> Translation:
    """One entry of `permissions`: a principal and a level."""
    entry = one.value if isinstance(one.value, dict) else {}
    holders = [(ours, entry[key]) for key, ours in OWN_HOLDERS.items() if entry.get(key)]
    level = str(entry.get("level"))
    if level == "IS_OWNER":
        return lost("a run is its owner's, who is the user that applies it")
    if len(holders) != 1 or entry.keys() - OWN_HOLDERS.keys() - {"level"}:
        return lost("it is no principal with a level", "write `permissions: [{level, user}]`")
    (kind, who) = holders[0]
    return carried((("permissions", NEXT), {"level": OWN_LEVELS.get(level, level), kind: str(who)}))


def experiment_folder(name: str) -> Rule:
    """The folder of the MLflow experiment that the field `name` names."""
    return lambda one: carried(
        put("mlflow.experiment", f"{one.text.strip().rstrip('/')}/{one.beside(name) or 'run'}")
    )


def artifact_location(one: ForeignField) -> Translation:
    return carried(put("mlflow.artifact_location", one.text.strip()))


def length(field: str, unit: float = 1, note: str | None = None) -> Rule:
    """A duration: a number of `unit` seconds, or a number with a letter for its unit."""

    def rule(one: ForeignField) -> Translation:
        seconds = one.number * unit if one.number is not None else read_duration(one.text)
        if seconds == 0:
            return carried()  # no limit
        if seconds is None or seconds < 0:
            return lost(f"`{one.text}` is no duration", f"write `{field}`, such as `{field}: 6h`")
        value = put(field, written_duration(seconds))
        return carried(value) if note is None else changed(note, value)

    return rule


def code_root(one: ForeignField) -> Translation:
    text = one.text.strip()
    if "$" in text or text.startswith("~"):
        return lost(f"`{text}` depends on the machine", "write `code: {root: …}`")
    root = one.file.relative(text)
    return carried() if root == "." else carried(put("code.root", root))


def code_paths(one: ForeignField) -> Translation:
    paths = one.value if isinstance(one.value, list) else []
    if not paths:
        return lost("it is no list of paths")
    return changed("all else is excluded", put("code.exclude", only([*map(str, paths)])))


def nodes_of(one: ForeignField, field: str) -> int:
    """The number of nodes that a field of the block says, or one."""
    text = one.beside(field) or "1"
    return int(text) if text.isdecimal() and int(text) > 0 else 1


def only(paths: list[str]) -> list[str]:
    """The patterns that exclude all but these files and folders, as git reads them."""
    patterns = ["/*"]
    for path in paths:
        parts = [part for part in path.split("/") if part not in ("", ".")]
        for depth in range(1, len(parts) + 1):
            here = "/".join(parts[:depth])
            patterns.append(f"!/{here}")
            if depth < len(parts):
                patterns.append(f"/{here}/*")
    return [*dict.fromkeys(patterns)]
