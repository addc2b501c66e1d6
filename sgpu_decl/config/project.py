"""A project file, `sgpu.yml`, with its blocks `presets` and `functions`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, create_model
from pydantic.fields import FieldInfo

from sgpu_decl.config.block import Block, Flag, Name, Positive
from sgpu_decl.config.env import EnvironmentBlock
from sgpu_decl.config.job import Job, RunAs
from sgpu_decl.config.other_tool_keys import PRESET_KEYS, PROJECT_KEYS
from sgpu_decl.config.required_version import version_range
from sgpu_decl.config.run import ProjectRun, RunConfig, TagName
from sgpu_decl.config.state import SharedState
from sgpu_decl.config.text_types import Duration, problem
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.target import USER, Mode
from sgpu_decl.text.shape import OtherToolKey


class Presets(Block):
    """What is the same for all runs and jobs of a target. Their own fields win."""

    other_tools: ClassVar[Mapping[str, OtherToolKey]] = PRESET_KEYS

    name_prefix: str | None = Field(
        None,
        description=f"The prefix of job names in the workspace. `{USER}` in it means the user who "
        f"applies. With `mode: development` the prefix must contain `{USER}`, and the default is "
        f"`[dev {USER}] `.",
    )
    tags: dict[TagName, str] = Field({}, description="Tags of all runs and jobs.")
    paused: Flag | None = Field(
        None, description="Whether schedules and triggers of jobs are suspended."
    )


DECIDED = {
    "name": "it is the name of the function",
    "enabled": "a call is always launched",
    "renamed_from": "the history of its calls stays under their name",
    "entrypoint": "it is the decorated function",
    "command": "it is the decorated function",
    "args": "they are the arguments of the call",
    "code": "a function travels with what it uses",
    "matrix": "each call is one run: `.map([...])` calls the function for each combination",
    "ray": "the decorator decides it: `@ray_launch` makes a call a Ray program",
    "after": "a call starts when it is made",
    "until": "each call launches, whatever became of the last one",
    "on_active": "each call is an attempt beside the others",
    "lifecycle": "no plan changes or removes a call",
}
"""The fields of a run that a call decides itself, with the reason."""


class _Functions(Block):
    elsewhere: ClassVar[Mapping[str, str]] = DECIDED

    keep_warm: Duration | None = Field(
        None,
        description="How long modules stay imported after a call, for the next call on this "
        "machine. Default: 2m in notebooks; elsewhere 0, which turns it off.",
    )


_MEANT = {"max_parallel": "How many calls run at once, of all functions; the others wait."}


def _optional(name: str, info: FieldInfo) -> tuple[Any, Any]:
    """The type and the field of a run as they are, but that nothing is required."""
    kind: Any = info.annotation
    if info.is_required():
        kind = (Annotated[kind, *info.metadata] if info.metadata else kind) | None
    elif name not in _MEANT:
        return kind, info
    return kind, Field(None, description=_MEANT.get(name, info.description))


_FIELDS: dict[str, Any] = {
    name: _optional(name, info)
    for name, info in RunConfig.model_fields.items()
    if name not in DECIDED
}

_FIELDS["gpus"] = (Positive | None, _FIELDS["gpus"][1])  # 0 is for a driver that a file declares

Functions = create_model(
    "Functions",
    __base__=_Functions,
    __doc__="The defaults of decorated functions.",
    **_FIELDS,
)


def _run_or_job(text: str) -> str:
    try:
        address = Address.parse(text)
    except ValueError:
        address = None
    if address is None or address.kind is Kind.ENVIRONMENT:
        raise problem(
            "bad_address",
            "{path} must be the address of a run or a job, not {given}",
            "write `run.NAME` or `job.NAME`",
        )
    return text


class ProjectBlock(Block):
    name: Name = Field(description="The project's name.")
    description: str | None = Field(None, description="What the project is for.")


class Defaults(Block):
    """Fields of all runs and of all jobs. A run or job that has a field itself wins."""

    run: ProjectRun | None = Field(None, description="Fields of all runs, as in a run file.")
    job: Job | None = Field(None, description="Fields of all jobs.")


class ProjectFile(Block):
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = PROJECT_KEYS

    elsewhere: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "sealed": "saved plans have no seals any more; `sgpu apply --reviewed` carries out "
            "only what `sgpu plan --propose` has shown"
        }
    )

    project: ProjectBlock | None = Field(None, description="The name of the project.")
    requires: Annotated[str, AfterValidator(version_range)] | None = Field(
        None,
        description="The versions of sgpu that may use the project, such as "
        "`requires: 'sgpu>=0.3,<1'`. Other versions refuse the file before they check anything "
        "else of it. Only the root file may have this field.",
    )
    mode: Mode = Field(
        Mode.PRODUCTION,
        description="Usually set in a target. With `development`, names of jobs begin with `[dev "
        "USER]`, jobs have the tag `dev`, and their schedules and triggers are paused unless "
        "`paused` is set. With `production`, sgpu refuses `--set` and a git checkout with changes.",
    )
    runs: dict[Name, ProjectRun] = Field(
        {}, description="The runs by name; each is written as in a run file."
    )
    jobs: dict[Name, Job] = Field(
        {}, description="The jobs by name: runs and notebooks that the platform starts."
    )
    environments: dict[Name, EnvironmentBlock] = Field(
        {}, description="Python environments that runs share, by name."
    )
    functions: Functions | None = Field(
        None,
        description="The defaults of this project's decorated functions. Decorators override "
        "them; the `functions` of a target override the decorators.",
    )
    state: SharedState | None = Field(
        None, description="The store of the state that machines share; default: this machine."
    )
    removed: tuple[Annotated[str, AfterValidator(_run_or_job)], ...] = Field(
        (),
        description="Addresses of runs and jobs that the project no longer manages, such as "
        "`job.old`. Apply removes them from the state; it cancels nothing and deletes nothing. "
        "Only the root file may have this field.",
    )
    include: tuple[str, ...] = Field(
        (),
        description="Files that belong to the project, as paths or patterns (`runs/*.yml`) from "
        "the folder of this file: run files, and fragments with `runs`, `jobs`, `environments`, "
        "`functions`, `defaults`, `variables` and `targets`. Only the root file may have this "
        "field.",
    )
    defaults: Defaults | None = Field(
        None, description="Fields of all runs and jobs that do not set them themselves."
    )
    run_as: RunAs | None = Field(
        None,
        description="Usually set in a target: whose rights the launches of all its jobs have.",
    )
    presets: Presets | None = Field(
        None,
        description="Usually set in a target: the names, tags and schedules of all its runs and "
        "jobs.",
    )
