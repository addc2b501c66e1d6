"""A project file: `sgpu.yml`."""

from pydantic import Field

from sgpu_decl.config.block import Block, Name
from sgpu_decl.config.env import EnvironmentBlock
from sgpu_decl.config.functions import Functions
from sgpu_decl.config.job import Job
from sgpu_decl.config.presets import Presets
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.state import SharedState
from sgpu_decl.model.target import Mode

__all__ = ["Defaults", "Project", "ProjectFile"]


class Project(Block):
    name: Name = Field(description="The project's name.")
    description: str | None = Field(None, description="What the project is for.")


class Defaults(Block):
    """Fields of all runs and of all jobs. A run or job that has a field itself wins."""

    run: RunConfig | None = Field(None, description="Fields of all runs, as in a run file.")
    job: Job | None = Field(None, description="Fields of all jobs.")


class ProjectFile(Block):
    project: Project | None = Field(None, description="The name of the project.")
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
