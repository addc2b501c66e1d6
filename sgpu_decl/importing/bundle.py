"""A Databricks bundle as a project: its jobs with GPU tasks, and a run for each of these tasks.

Source of what a bundle has: https://docs.databricks.com/aws/en/dev-tools/bundles/settings and the
schema that `databricks bundle schema` prints.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sgpu_decl.importing.bundle_shapes import misshapen, misshapen_task
from sgpu_decl.importing.bundle_task import BUNDLE_TASK, KINDS
from sgpu_decl.importing.field_rules import (
    as_text,
    grant,
    left,
    platform,
    requirement,
    run_name,
    says_nothing,
    version,
)
from sgpu_decl.importing.foreign_file import (
    ForeignField,
    ForeignFile,
    at,
    plain,
    read_root,
    text_at,
)
from sgpu_decl.importing.foreign_tool import FieldTranslation, ForeignTool, translated
from sgpu_decl.importing.translation import (
    NEXT,
    Fate,
    Keys,
    Translation,
    carried,
    changed,
    lost,
    put,
)
from sgpu_decl.model.backend_kinds import only_kind
from sgpu_decl.model.jsonable import Json
from sgpu_decl.text import yaml_nodes
from sgpu_decl.text.yaml_nodes import Node, Scalar, Sequence, place_of

if TYPE_CHECKING:
    from sgpu_decl.backends.job_backend import WrittenJob

_CORRECT = "correct it in the bundle"
_STAYS = "sgpu has no such thing"
_IN_BUNDLE = "leave it in the bundle"
_OF_BUNDLE = re.compile(r"\$\{(?!var\.|target\.|project\.|git\.)([a-z_]+\.[^}]*)\}")
_SAME = {
    "bundle.target": "${target.name}",
    "bundle.name": "${project.name}",
    "bundle.git.commit": "${git.commit}",
    "bundle.git.branch": "${git.branch}",
}
_FILES = re.compile(r"\$\{workspace\.(?:file_path|root_path\}/files)\}?/")
_IMAGE = "ai_runtime_task.unity_catalog_image_path"  # it has the packages
_BACKEND = ("defaults", "run", "backend")
_ROOT = ForeignTool(
    what="a bundle",
    fields={
        "bundle.name": lambda one: carried(put("project.name", run_name(one.text))),
        "bundle.databricks_cli_version": left("no Databricks CLI deploys it"),
        "bundle.git.*": left("the commit is that of the checkout"),
        "bundle.*": left(_STAYS),
        "include.#": lambda one: (
            carried()
            if _is_inside(one.text)
            else lost("files outside of the bundle are not read", "copy them into its folder")
        ),
        "variables.*.default": lambda one: carried((("variables", *one.path[1:]), one.value)),
        "variables.*.description": lambda one: _described(one),
        "variables.*.type": says_nothing,  # `complex`: a list or mapping, which its default is
        "variables.*.lookup": lambda one: carried((("variables", *one.path[1:]), one.value)),
        "variables.*": lambda one: carried((("variables", one.key), one.value)),
        "targets.*.mode": lambda one: carried((one.path, one.text)),
        "targets.*.default": lambda one: carried((one.path, one.value is True)),
        "targets.*.variables.*": lambda one: _target_variable(one),
        "targets.*.workspace.host": lambda one: carried(
            ((*one.path[:2], *_BACKEND, "kind"), platform()),
            ((*one.path[:2], *_BACKEND, "host"), one.text),
        ),
        "targets.*.workspace.*": left("staging and state lie elsewhere", "see `docs/state.md`"),
        "targets.*.resources": left(
            "import does not read changes of jobs in a target",
            "write them under `targets.NAME.runs` and `jobs`",
        ),
        "targets.*.run_as.user_name": lambda one: carried(
            ((*one.path[:3], "user"), one.text),
        ),
        "targets.*.run_as.service_principal_name": lambda one: carried(
            ((*one.path[:3], "service_principal"), one.text),
        ),
        "targets.*.git.branch": lambda one: carried(((*one.path[:2], "branch"), one.text)),
        "targets.*.*": left(_STAYS, "look at `sgpu explain project.targets`"),
        "workspace.host": lambda one: carried(((*_BACKEND, "host"), one.text)),
        "workspace.profile": lambda one: carried(((*_BACKEND, "profile"), one.text)),
        "workspace.*": left("staging and state lie elsewhere", "see `docs/state.md`"),
        "run_as.user_name": as_text("defaults.job.run_as.user"),
        "run_as.service_principal_name": as_text("defaults.job.run_as.service_principal"),
        "permissions.#": lambda one: _below(("defaults", "job"), grant(one)),
        "presets.*": left("a project has presets in its targets", "see `docs/yaml.md`"),
        "artifacts.*": lambda one: _artifact(one),
        "sync.*": left("sgpu sends the code of each run", "write `code` of the run"),
        "resources.*.*": left("it is no job with a GPU task", _IN_BUNDLE),
        "python": left("what the program adds is not in this file", "write it as runs and jobs"),
        "scripts": left(_STAYS, _IN_BUNDLE),
        "experimental": left(_STAYS, _IN_BUNDLE),
    },
    absent={"backend": lambda _: carried(((*_BACKEND, "kind"), platform()))},
)


_ENVIRONMENT = ForeignTool(
    what="an environment",
    fields={
        "environment_key": says_nothing,
        "spec.environment_version": version,
        "spec.base_environment": version,
        "spec.client": version,
        "spec.dependencies.#": requirement,
        "spec.java_dependencies": left("ranks run no Java"),
        "spec.project_environment": left(
            "the packages of a project", "write its lock file: `env: {lock: uv.lock}`"
        ),
    },
    absent={},
)


def _described(one: ForeignField) -> Translation:
    name, said = one.path[1], (one.path, one.text)
    variable = at(one.block, f"variables.{name}")
    if at(variable, "default") is not None or at(variable, "lookup") is not None:
        return carried(said)
    return changed("it has no default", said, hint=f"give it: `--var {name}=…`, or a `default`")


def _target_variable(one: ForeignField) -> Translation:
    value = one.value
    if isinstance(value, dict) and value.keys() <= {"default", "lookup", "description", "type"}:
        if "default" not in value:
            return lost("a target gives a value", "write the value")
        value = value["default"]
    return carried((one.path, value))


def _artifact(one: ForeignField) -> Translation:
    kind = at(one.node, "type")
    if isinstance(kind, Scalar) and kind.text == "tgz":
        return carried()  # a task that uses it says what became of it
    return lost(
        "sgpu builds no packages",
        "build it before, and name the file in `env: {dependencies: […]}`",
    )


def read_bundle(file: ForeignFile) -> tuple[list[FieldTranslation], list[FieldTranslation]]:
    """The fields of a bundle and what becomes of them, and the defaults of bundles.

    Raises:
        InvalidInput: no job of it has a GPU task, or a file that it includes is no YAML.
    """
    file = replace(file, root=_included(file))
    rewritten = _rewritten(file.root, file)
    assert isinstance(rewritten, yaml_nodes.Mapping)  # noqa: S101  as it was
    file = replace(file, root=rewritten)
    jobs = at(file.root, "resources.jobs")
    found = jobs.entries if isinstance(jobs, yaml_nodes.Mapping) else {}
    ours = {key: job for key, job in found.items() if any(_gpu_tasks(job))}
    if not ours:
        raise file.refused(
            "has no job with a GPU task (`ai_runtime_task`)",
            "leave it a bundle: sgpu and bundles work side by side, see `docs/bundles.md`",
        )
    fields, defaults = translated(_ROOT, _less(file.root, ours), file)
    taken: set[str] = set()
    for key, job in ours.items():
        assert isinstance(job, yaml_nodes.Mapping)  # noqa: S101  it has tasks
        new, more = _Job(key, job, file, taken).read()
        fields += new
        defaults += more
    return [_checked(one) for one in fields], defaults


def _less(root: yaml_nodes.Mapping, ours: Mapping[str, Node]) -> yaml_nodes.Mapping:
    """The root without the jobs that are ours."""
    resources = root.entries["resources"]
    assert isinstance(resources, yaml_nodes.Mapping)  # noqa: S101  it has jobs
    jobs = resources.entries["jobs"]
    assert isinstance(jobs, yaml_nodes.Mapping)  # noqa: S101  as before
    rest = yaml_nodes.without_keys(jobs, *ours)
    others = {**resources.entries, "jobs": rest} if rest.entries else dict(resources.entries)
    if not rest.entries:
        del others["jobs"]
    entries = {**root.entries, "resources": replace(resources, entries=others)}
    if not others:
        del entries["resources"]
    return replace(root, entries=entries)


def _included(file: ForeignFile) -> yaml_nodes.Mapping:
    """The root with the blocks of the files that it includes."""
    include = at(file.root, "include")
    root = file.root
    for pattern in include.items if isinstance(include, Sequence) else ():
        text = pattern.text if isinstance(pattern, Scalar) else ""
        if not text or not _is_inside(text):
            continue
        for path in filter(file.may_name, sorted(file.folder.glob(text))):
            shown = os.path.relpath(path) if not os.path.isabs(file.shown) else os.fspath(path)
            root = _merged(root, read_root(Path(shown)))
    return root


def _is_inside(pattern: str) -> bool:
    return not os.path.isabs(pattern) and ".." not in pattern.split("/")


def _merged(one: yaml_nodes.Mapping, other: yaml_nodes.Mapping) -> yaml_nodes.Mapping:
    entries = dict(one.entries)
    for key, value in other.entries.items():
        mine = entries.get(key)
        both = isinstance(mine, yaml_nodes.Mapping) and isinstance(value, yaml_nodes.Mapping)
        entries[key] = _merged(mine, value) if both else value  # type: ignore[arg-type]
    return replace(one, entries=entries, keys={**one.keys, **other.keys})


def _rewritten(node: Node, file: ForeignFile) -> Node:
    """A value with the references of bundles as ours, as far as there are such."""
    if isinstance(node, Scalar):
        text = _FILES.sub(lambda _: f"{file.folder}/", node.text)
        text = _OF_BUNDLE.sub(lambda match: _SAME.get(match[1], match[0]), text)
        return node if text == node.text else node._replace(text=text)
    if isinstance(node, Sequence):
        return replace(node, items=tuple(_rewritten(item, file) for item in node.items))
    entries = {key: _rewritten(value, file) for key, value in node.entries.items()}
    return replace(node, entries=entries)


def _checked(one: FieldTranslation) -> FieldTranslation:
    """A field is lost if its value refers to what bundles alone have."""
    for _, value in one.translation.puts:
        if found := _OF_BUNDLE.search(str(value)):
            if one.path[-1:] in (("command_path",), ("training_script_path",)):
                continue  # a shell reads it
            why = lost(f"it refers to `{found[0]}`, which bundles alone have", "write the value")
            return replace(one, translation=why)
    return one


def _gpu_tasks(job: Node) -> Iterator[yaml_nodes.Mapping]:
    tasks = at(job, "tasks")
    for task in tasks.items if isinstance(tasks, Sequence) else ():
        named = isinstance(at(task, "task_key"), Scalar)
        kinds = [kind for kind in KINDS if isinstance(at(task, kind), yaml_nodes.Mapping)]
        if isinstance(task, yaml_nodes.Mapping) and named and kinds:
            yield task


class _Job:
    """One job with GPU tasks. `taken` are the names of runs; those of this job are added."""

    def __init__(
        self, key: str, job: yaml_nodes.Mapping, file: ForeignFile, taken: set[str]
    ) -> None:
        self.start = ("resources", "jobs", key)
        self.key, self.name, self.job, self.file = key, run_name(key), job, file
        self.runs: dict[str, str] = {}
        for task in _gpu_tasks(job):
            own = str(text_at(task, "task_key"))
            name = run_name(own)
            if name in taken:
                name = run_name(f"{key}-{own}")
            taken.add(name)
            self.runs[own] = name

    def read(self) -> tuple[list[FieldTranslation], list[FieldTranslation]]:
        fields: list[FieldTranslation] = []
        defaults: list[FieldTranslation] = []
        for key, node in self.job.entries.items():
            if key == "tasks":
                new, more = self._tasks(node)
                fields += new
                defaults += more
            elif key == "environments":
                fields += self._environments(node)
            else:
                fields += self._setting(key, node)
        if "queue" not in self.job.entries:
            queue = ((("jobs", self.name, "queue"), True),)
            note = "a bundle lets launches wait for the one before"
            said = Translation(fate=Fate.CHANGED, puts=queue, note=note)
            defaults.append(FieldTranslation(path=(*self.start, "queue"), translation=said))
        return fields, defaults

    def _field(self, path: Keys, said: Translation, node: Node) -> FieldTranslation:
        return FieldTranslation(path=(*self.start, *path), translation=said, place=place_of(node))

    def _written(self, settings: Mapping[str, Json]) -> "WrittenJob":
        """A job of some settings, in our words."""
        write = only_kind("has bundles", lambda kind: kind.bundle).written_job
        assert write is not None  # noqa: S101  it goes with bundles
        copied = dict(self._copied(settings))
        return cast("WrittenJob", write({"name": self.name, **settings}, self.name, copied))

    def _copied(self, settings: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
        """The scripts and notebooks of tasks that lie beside the bundle."""
        tasks = settings.get("tasks")
        for task in tasks if isinstance(tasks, list) else ():
            for kind, key in (
                ("notebook_task", "notebook_path"),
                ("spark_python_task", "python_file"),
            ):
                block = task.get(kind) if isinstance(task, dict) else None
                path = block.get(key) if isinstance(block, dict) else None
                here = Path(os.path.abspath(self.job.file)).parent / str(path)
                if isinstance(path, str) and here.is_file():
                    yield path, Path(os.path.relpath(here, self.file.target)).as_posix()

    def _setting(self, key: str, node: Node) -> Iterator[FieldTranslation]:
        """A setting of the job itself, and those in it that the YAML does not have."""
        value = plain(node)
        if yaml_nodes.is_nothing(node):
            yield self._field((key,), carried(), node)
            return
        if (wrong := misshapen(key, value)) is not None:
            yield self._field((key,), lost(wrong, _CORRECT), node)
            return
        if key == "name":
            named = () if value == self.name else ((("jobs", self.name, "name"), value),)
            yield self._field((key,), carried(*named), node)
            return
        if key == "permissions":
            yield from self._permissions(node)
            return
        written = self._written({key: value, "tasks": []})
        puts = tuple(
            one
            for field, said in written.block.items()
            if field not in ("tasks", "name") and (field != "queue" or key == "queue")
            for one in self._puts(field, said)
        )
        known = tuple(path for path in written.lost if path.partition(".")[0] == key)
        if puts or not known:
            yield self._field((key,), carried(*puts), node)
        for path in known if puts else known[:1]:
            said = lost("the YAML has no such field of a job", "leave the job in the bundle for it")
            yield self._field(tuple(path.split(".")) if puts else (key,), said, node)

    def _puts(self, field: str, said: Json) -> Iterator[tuple[Keys, Json]]:
        """A field of the job. Mails and webhooks of an event come from two settings."""
        if field != "notify" or not isinstance(said, dict):
            yield ("jobs", self.name, field), said
            return
        for event, listed in said.items():
            for recipient in listed if isinstance(listed, list) else ():
                yield ("jobs", self.name, field, event, NEXT), recipient

    def _permissions(self, node: Node) -> Iterator[FieldTranslation]:
        if not yaml_nodes.children(node):
            yield self._field(("permissions",), carried(), node)
        for index, item in enumerate(yaml_nodes.children(node)):
            one = ForeignField(path=(str(index),), node=item, file=self.file, block=self.job)
            said = _below(("jobs", self.name), grant(one))
            yield self._field(("permissions", str(index)), said, item)

    def _environments(self, node: Node) -> Iterator[FieldTranslation]:
        """Each field of an environment becomes one of the runs whose tasks have that."""
        wrong = misshapen("environments", plain(node))
        if wrong is not None or not yaml_nodes.children(node):
            said = carried() if wrong is None else lost(wrong, _CORRECT)
            yield self._field(("environments",), said, node)
            return
        for index, item in enumerate(yaml_nodes.children(node)):
            assert isinstance(item, yaml_nodes.Mapping)  # noqa: S101  as looked at
            key = text_at(item, "environment_key")
            users = [
                self.runs[str(text_at(task, "task_key"))]
                for task in _gpu_tasks(self.job)
                if text_at(task, "environment_key") == key and at(task, _IMAGE) is None
            ]
            start = (*self.start, "environments", str(index))
            for one in translated(_ENVIRONMENT, item, self.file, start)[0]:
                puts = tuple(
                    (("runs", run, *keys), value)
                    for keys, value in one.translation.puts
                    for run in users
                )
                # What no run uses, other tasks say.
                said = replace(one.translation, puts=puts) if users else carried()
                yield replace(one, translation=said)

    def _tasks(self, node: Node) -> tuple[list[FieldTranslation], list[FieldTranslation]]:
        fields: list[FieldTranslation] = []
        defaults: list[FieldTranslation] = []
        environments = plain(self.job.entries.get("environments", node))
        for index, task in enumerate(node.items if isinstance(node, Sequence) else ()):
            start = ("tasks", str(index))
            key = at(task, "task_key")
            if not isinstance(task, yaml_nodes.Mapping) or not isinstance(key, Scalar):
                fields.append(self._field(start, lost("it is no task with a `task_key`"), task))
                continue
            said = self._task_of(task, key.text, environments)
            if key.text not in self.runs:
                fields.append(self._field(start, said, task))
                continue
            run = self.runs[key.text]
            new, more = translated(BUNDLE_TASK, task, self.file, (*self.start, *start))
            for one in new:  # its key has what the job says of the task
                is_key = one.path[-1] == "task_key"
                of_run = _below(("runs", run), one.translation)
                fields.append(replace(one, translation=said if is_key else of_run))
            defaults += [
                replace(one, translation=_below(("runs", run), one.translation)) for one in more
            ]
        return fields, defaults

    def _task_of(self, task: yaml_nodes.Mapping, key: str, environments: Json) -> Translation:
        """What the job says of a task."""
        value = plain(task)
        assert isinstance(value, dict)  # noqa: S101  as it is
        is_run = key in self.runs
        if is_run:
            order = {name: value[name] for name in ("depends_on", "run_if") if name in value}
            value = {"task_key": key, KINDS[0]: {}, **order}
        if (wrong := misshapen_task(value)) is not None:
            return lost(wrong, _CORRECT)
        shaped = environments if misshapen("environments", environments) is None else []
        written = self._written({"tasks": [value], "environments": shaped})
        blocks = written.block["tasks"]
        block = blocks.get(key) if isinstance(blocks, dict) else None
        said = dict(block) if isinstance(block, dict) else {}
        if is_run:
            said = {
                "run": self.runs[key],
                **{k: v for k, v in said.items() if k in ("after", "if")},
            }
        return carried((("jobs", self.name, "tasks", run_name(key)), said))


def _below(start: Keys, said: Translation) -> Translation:
    """The same with fields of ours that are those of a block."""
    return replace(said, puts=tuple(((*start, *path), value) for path, value in said.puts))
