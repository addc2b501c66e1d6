"""A project file: `sgpu.yml`."""

from typing import Annotated, Literal

from pydantic import Field

from sgpu_decl.config.block import Block, Flag, Name
from sgpu_decl.config.env import EnvironmentBlock
from sgpu_decl.config.functions import Functions
from sgpu_decl.config.run import RunConfig

__all__ = ["Job", "Project", "ProjectFile"]


class Project(Block):
    name: Name = Field(description="The project's name.")
    description: str | None = Field(None, description="What the project is for.")


class Job(Block):
    """A scheduled definition (a Lakeflow job on Databricks)."""

    description: str | None = Field(None, description="What the job is for.")
    run: str = Field(description="The run that is launched: a key under `runs`.")
    schedule: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="When: a cron expression."
    )
    timezone: str = Field("UTC", description="The time zone of the schedule.")
    paused: Flag = Field(default=False, description="Whether the schedule is suspended.")
    on_overlap: Literal["skip", "queue"] = Field(
        "skip", description="What happens while the last launch is active."
    )


class ProjectFile(Block):
    project: Project | None = Field(None, description="What the project is called.")
    runs: dict[Name, RunConfig] = Field(
        {}, description="The runs by name; each is written as in a run file."
    )
    jobs: dict[Name, Job] = Field({}, description="Scheduled definitions by name.")
    environments: dict[Name, EnvironmentBlock] = Field(
        {}, description="Python environments that runs share, by name."
    )
    functions: Functions | None = Field(
        None,
        description="What the decorated functions of this project take where their decorators are "
        "silent; what a target says here wins over the decorators.",
    )
    include: tuple[str, ...] = Field((), description="Patterns of further files to read.")
