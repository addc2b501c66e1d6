"""The tasks of a job: what each is, and which come before it."""

import posixpath
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    create_model,
    model_validator,
)

from sgpu_decl.config.block import NAME_PATTERN, PATH, Block, WholeNumber
from sgpu_decl.config.gpu_type import GpuType, unknown_type_hint
from sgpu_decl.config.other_tool_keys import TASK_KEYS
from sgpu_decl.config.text_types import Duration, problem
from sgpu_decl.text.shape import OtherToolKey

TASK_KINDS = ("run", "python", "notebook", "task")
"""The fields that say what a task is: it has one of them."""

RunIf = Literal[
    "all_success",
    "all_done",
    "none_failed",
    "at_least_one_success",
    "all_failed",
    "at_least_one_failed",
]
UPSTREAM = NAME_PATTERN.replace("$", r"(\.(true|false))?$")
"""A name in `after`: of a task, perhaps with the outcome of its condition behind a dot."""
_PARAMETER = re.compile(r"\$\{job\.parameters\.([\w.-]{1,200})\}")
_FILLED_IN = re.compile(r"\{\{\s*job\.parameters\.([\w.-]+)\s*\}\}")
_REFERENCE = re.compile(r"\{\{\s*(?:job|tasks?|workspace|backfill)\.[^{}]*\}\}")


def _accelerator(text: str) -> str:
    gpu_type = GpuType.find(text)
    if gpu_type is None:
        raise problem(
            "unknown_gpu_type", "{path} must be a type of GPU, not {given}", unknown_type_hint(text)
        )
    if gpu_type.name == "CPU":
        raise problem(
            "unknown_gpu_type",
            "{path} is for a notebook on a GPU",
            "leave it out: a notebook without it runs on a CPU",
        )
    return gpu_type.accelerator or gpu_type.name


def _notebook_path(text: str) -> str:
    if not text.startswith("/"):
        raise problem(
            "bad_path",
            "{path} must be the path of a notebook in the workspace",
            "such as `/Workspace/Users/me@example.com/report`; sgpu does not upload it",
        )
    return text


def _own_notebook_path(text: str) -> str:
    if text.startswith("/"):
        return text
    path = posixpath.normpath(text)
    if text.startswith("~") or path.startswith("..") or not path.endswith((".ipynb", ".py")):
        raise problem(
            "bad_path",
            "{path} must be a notebook below the folder of the project, or one in the workspace",
            "such as `./report.ipynb`, or `/Workspace/Users/me@example.com/report`",
        )
    return path


def _script_path(text: str) -> str:
    path = posixpath.normpath(text)
    if text.startswith(("/", "~")) or path.startswith("..") or not path.endswith(".py"):
        raise problem(
            "bad_path",
            "{path} must be a Python file below the folder of the project",
            "such as `prepare.py` or `pipeline/prepare.py`",
        )
    return path


def _by_path(value: object) -> object:
    """A path is short for the block."""
    return {"path": value} if isinstance(value, str) else value


def in_platform_words(text: str) -> str:
    """Text of a task with references to the parameters of the job as the platform writes them.

    Source: https://docs.databricks.com/aws/en/jobs/dynamic-value-references
    """
    return _PARAMETER.sub(r"{{job.parameters.\1}}", text)


def with_parameters(text: str, values: Mapping[str, str]) -> str:
    """Text of a task with the values of the job's parameters, as the platform fills them in."""
    return _FILLED_IN.sub(lambda match: values.get(match[1], match[0]), in_platform_words(text))


def other_references(texts: Iterable[str]) -> list[str]:
    """The references of the platform in texts of a task that name no parameter of the job."""
    left = (_FILLED_IN.sub("", in_platform_words(text)) for text in texts)
    return [match[0] for text in left for match in _REFERENCE.finditer(text)]


class Notebook(Block):
    """A notebook of the workspace as a job's task."""

    path: Annotated[str, AfterValidator(_notebook_path)] = Field(
        description="The path of the notebook in the workspace."
    )
    type: Annotated[str, AfterValidator(_accelerator)] | None = Field(
        None,
        description="The GPU of the notebook: a type such as A10, or a node with several GPUs, "
        "such as GPU_8xH100. Leave it out for a CPU.",
        json_schema_extra={"pattern": GpuType.published["pattern"]},
    )
    base: str | None = Field(
        None, description="The base environment, such as `gpu-4`; default: the notebook's own."
    )
    dependencies: tuple[str, ...] = Field(
        (), description="Packages to install into `base`, as requirement lines."
    )
    parameters: dict[str, str] = Field({}, description="The values of the notebook's widgets.")
    retries: WholeNumber = Field(0, description="The number of restarts after a failure.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.dependencies and self.base is None:
            raise problem(
                "contradiction", "`dependencies` are installed into a base environment",
                "name it with `base`, such as `gpu-4`",
            )  # fmt: skip
        return self


class TaskNotebook(Notebook):
    """A notebook as one task of several: of the workspace, or of the repository."""

    short: ClassVar[str | None] = "path"

    path: Annotated[str, PATH, AfterValidator(_own_notebook_path)] = Field(
        description="The path of a notebook: absolute in the workspace, or relative to this file. "
        "A notebook of the repository is staged with the job."
    )

    @property
    def file(self) -> str | None:
        """The path of a notebook of the repository, relative to the project."""
        return None if self.path.startswith("/") else self.path


_OF_KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "args": ("python",),
        "base": ("python", "task"),
        "dependencies": ("python", "task"),
        "retries": ("python",),
        "timeout": ("python", "notebook"),
    }
)
"""The kinds of tasks that a field is for."""
_INSTEAD = {
    ("run", "args"): "write `args` of the run: a GPU task of the platform has no parameters",
    ("run", "base"): "write `env: {base: …}` of the run",
    ("run", "dependencies"): "write `env: {dependencies: […]}` of the run",
    ("run", "retries"): "write `retry: {max: …}` of the run",
    ("run", "timeout"): "write `timeout` of the run",
    ("notebook", "args"): "write `notebook: {path: …, parameters: {…}}`",
    ("notebook", "base"): "write `notebook: {path: …, base: …}`",
    ("notebook", "dependencies"): "write `notebook: {path: …, dependencies: […]}`",
    ("notebook", "retries"): "write `notebook: {path: …, retries: …}`",
    ("task", "args"): "write `parameters` in `task`, as the platform calls them",
    ("task", "retries"): "write `max_retries` in `task`, as the platform calls it",
    ("task", "timeout"): "write `timeout_seconds` in `task`, as the platform calls it",
}


class _Task(Block):
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = TASK_KEYS

    run: str | None = Field(None, description="The run that the task launches: a key under `runs`.")
    python: Annotated[str, PATH, AfterValidator(_script_path)] | None = Field(
        None,
        description="A Python file of the repository. It runs on serverless CPU compute, in the "
        "unpacked code of the project.",
    )
    notebook: Annotated[TaskNotebook | None, PATH, BeforeValidator(_by_path)] = Field(
        None, description="A notebook; short form: `notebook: PATH`."
    )
    task: dict[str, JsonValue] | None = Field(
        None,
        description="A task in the words of the platform's API, such as `{sql_task: {…}}`. It is "
        "checked, and sent as it is.",
    )
    after: tuple[Annotated[str, Field(pattern=UPSTREAM)], ...] = Field(
        (),
        description="The tasks that come before: names of this job's tasks. `NAME.true` and "
        "`NAME.false` are the outcomes of a task with a condition.",
    )
    args: tuple[str, ...] = Field(
        (),
        description="The arguments of `python`. `${job.parameters.NAME}` is a parameter of the "
        "job, as each launch has it.",
    )
    base: str | None = Field(
        None,
        description="The base environment of `python` or `task`, such as `gpu-4`. Default for "
        "`python`: `gpu-4`.",
    )
    dependencies: tuple[str, ...] = Field(
        (), description="Packages to install into `base`, as requirement lines."
    )
    retries: WholeNumber = Field(
        0, description="The number of restarts of `python` after a failure."
    )
    timeout: Duration | None = Field(
        None, description="How long `python` or `notebook` may take, each time it is started."
    )

    @property
    def run_if(self) -> str:
        """When the task runs, as to how the tasks before it ended."""
        return str(getattr(self, "if"))

    @property
    def kind(self) -> str:
        """The field that says what it is."""
        return next(name for name in TASK_KINDS if getattr(self, name) is not None)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        kinds = [name for name in TASK_KINDS if getattr(self, name) is not None]
        if len(kinds) != 1:
            listed = " and ".join(f"`{name}`" for name in kinds)
            raise problem(
                "contradiction",
                f"{{path}} has {listed}, and a task is one of them"
                if kinds
                else "{path} does not say what the task is",
                "keep one of them, and make the other a task of its own"
                if kinds
                else "write `run: NAME`, `python: FILE`, `notebook: PATH` or `task: {…}`",
            )
        (kind,) = kinds
        for name, having in _OF_KINDS.items():
            if name in self.model_fields_set and kind not in having:
                raise problem(
                    "contradiction",
                    f"`{name}` of {{path}} does not belong to a task with `{kind}`",
                    _INSTEAD[kind, name],
                )
        if self.dependencies and self.base is None and kind == "task":
            raise problem(
                "contradiction", "`dependencies` are installed into a base environment",
                "name it with `base`, such as `gpu-4`",
            )  # fmt: skip
        return self


if TYPE_CHECKING:
    Task = _Task
else:
    # `if` is no name in Python.
    Task = create_model(
        "Task",
        __base__=_Task,
        __doc__="One task of a job: a run, a Python file, a notebook, or a task of the platform.",
        **{
            "if": (
                RunIf,
                Field(
                    "all_success",
                    description="When the task runs: how the tasks in `after` must have ended.",
                ),
            )
        },
    )
