"""A project file: `sgpu.yml`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from sgpu_decl.config.block import Block, Name
from sgpu_decl.config.env import EnvironmentBlock
from sgpu_decl.config.functions import Functions
from sgpu_decl.config.job import Job
from sgpu_decl.config.other_tool_keys import PROJECT_KEYS
from sgpu_decl.config.presets import Presets
from sgpu_decl.config.problems import problem
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.state import SharedState
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.target import Mode
from sgpu_decl.text.shape import OtherToolKey


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

    run: RunConfig | None = Field(None, description="Fields of all runs, as in a run file.")
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
    mode: Mode = Field(
        Mode.PRODUCTION,
        description="Usually set in a target. With `development`, names of jobs begin with `[dev "
        "USER]`, jobs have the tag `dev`, and their schedules and triggers are paused unless "
        "`paused` is set. If it says `production`, `--set` and a git checkout with changes are "
        "refused.",
    )
    runs: dict[Name, RunConfig] = Field(
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
        description="The defaults of the decorated functions of this project. Decorators win over "
        "them; the `functions` of a target win over the decorators.",
    )
    state: SharedState | None = Field(
        None, description="The store of the state that machines share; default: this machine."
    )
    removed: tuple[Annotated[str, AfterValidator(_run_or_job)], ...] = Field(
        (),
        description="Addresses of runs and jobs that are no longer declared and that the project "
        "lets go, such as `job.old`: apply forgets them, cancels nothing and deletes nothing. Only "
        "the root file has it.",
    )
    include: tuple[str, ...] = Field(
        (),
        description="Files that belong to the project, as paths or patterns (`runs/*.yml`) from "
        "the folder of this file: run files, and fragments with `runs`, `jobs`, `environments`, "
        "`functions`, `defaults`, `variables` and `targets`. Only the root file has it.",
    )
    defaults: Defaults | None = Field(
        None, description="Fields that all runs and jobs have unless they say otherwise."
    )
    presets: Presets | None = Field(
        None,
        description="Usually set in a target: the names, tags and schedules of everything in it.",
    )
