"""A job: what a scheduler starts, again and again."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sgpu_decl.config.backend import Backend
from sgpu_decl.config.block import Block, Flag, WholeNumber, name_or_address
from sgpu_decl.config.gpu_type import GpuType, unknown_type_hint
from sgpu_decl.config.on_finish import Mails
from sgpu_decl.config.other_tool_keys import JOB_KEYS, TRIGGER_KEYS
from sgpu_decl.config.run_blocks import Lifecycle, Permission
from sgpu_decl.config.schedule import refuse_cron, zone_name
from sgpu_decl.config.text_types import Duration, problem
from sgpu_decl.text.shape import OtherToolKey

_TABLE = re.compile(r"[^.\s]+\.[^.\s]+\.[^.\s]+")
PERIODS = {"minutes": 60, "hours": 3_600, "days": 86_400, "weeks": 604_800}
"""The units of `trigger.every`, in seconds."""


def _cron(text: str) -> str:
    refused = refuse_cron(text)
    if refused is not None:
        why, hint = refused
        raise problem("bad_cron", f"{{path}} is no Quartz cron expression: it {why}", hint)
    return " ".join(text.split())


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


def _folder_url(text: str) -> str:
    if not text.endswith("/") or not (text.startswith("/Volumes/") or "://" in text):
        raise problem(
            "bad_path",
            "{path} must be a folder that ends with `/`",
            "such as `/Volumes/main/ml/incoming/` or `s3://bucket/incoming/`",
        )
    return text


def _tables(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or not all(_TABLE.fullmatch(name) for name in names):
        raise problem(
            "bad_table",
            "{path} must name tables with their catalog and schema",
            "such as `main.ml.events`",
        )
    return names


def _period(value: Duration) -> Duration:
    if value.seconds <= 0 or value.seconds % PERIODS["minutes"]:
        raise problem("bad_duration", "{path} must be a whole number of minutes", "such as `6h`")
    return value


class Trigger(Block):
    """What starts a job: one of these."""

    other_tools: ClassVar[Mapping[str, OtherToolKey]] = TRIGGER_KEYS

    every: Annotated[Duration, AfterValidator(_period)] | None = Field(
        None, description="Time between two starts, in whole minutes: `30m`, `6h`, `7d`."
    )
    file_arrival: Annotated[str, AfterValidator(_folder_url)] | None = Field(
        None, description="A folder of Unity Catalog: new files in it start the job."
    )
    table_update: Annotated[tuple[str, ...], AfterValidator(_tables)] | None = Field(
        None, description="Tables of Unity Catalog: a change of one of them starts the job."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise problem(
                "contradiction",
                "a trigger is one of `every`, `file_arrival` and `table_update`",
                "keep one of them",
            )
        return self

    @property
    def period(self) -> tuple[int, str] | None:
        """`every` as the largest unit that fits: a number, and `MINUTES`, `HOURS`, `DAYS` or
        `WEEKS`."""
        if self.every is None:
            return None
        unit = [name for name, long in PERIODS.items() if self.every.seconds % long == 0][-1]
        return int(self.every.seconds) // PERIODS[unit], unit.upper()


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
    parameters: dict[str, str] = Field({}, description="The values of its widgets.")
    retries: WholeNumber = Field(0, description="The number of restarts after a failure.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.dependencies and self.base is None:
            raise problem(
                "contradiction", "`dependencies` are installed into a base environment",
                "name it with `base`, such as `gpu-4`",
            )  # fmt: skip
        return self


def _job_name(text: str) -> str:
    """`nightly`, also where its address is written: `job.nightly`."""
    return text.removeprefix("job.")


OldName = Annotated[str, Field(pattern=name_or_address("job")), AfterValidator(_job_name)]


class Job(Block):
    """What is started by the clock or by an event: a run of the project, or a notebook (a Lakeflow
    job on Databricks)."""

    other_tools: ClassVar[Mapping[str, OtherToolKey]] = JOB_KEYS

    name: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        None, description="The name of the job in the workspace; default: its key."
    )
    renamed_from: OldName | None = Field(
        None,
        description="The earlier name of the job under `jobs`. The job stays the same, and is not "
        "created again. Remove the line once you have applied it in all targets.",
    )
    description: str | None = Field(None, description="What the job is for.")
    enabled: Flag = Field(
        default=True,
        description="Whether the job belongs to the project. A target that sets `false` leaves it "
        "out: there it is not created, and it is deleted if it was.",
    )
    targets: tuple[str, ...] | None = Field(
        None,
        description="The targets that have the job; default: all. The others leave it out, as with "
        "`enabled: false`. `default` stands for commands without a target.",
    )
    run: str | None = Field(None, description="The run that the job launches: a key under `runs`.")
    notebook: Notebook | None = Field(None, description="The notebook that the job runs.")
    schedule: Annotated[str, AfterValidator(_cron)] | None = Field(
        None,
        description="When the job starts: a Quartz cron expression, which begins with the seconds.",
    )
    timezone: Annotated[str, Field(min_length=1), AfterValidator(zone_name)] = Field(
        "UTC", description="The time zone of the schedule, such as Europe/Berlin."
    )
    trigger: Trigger | None = Field(
        None, description="The event that starts the job instead of a schedule."
    )
    paused: Flag | None = Field(
        None,
        description="Whether the schedule or trigger is suspended; default: true with `mode: "
        "development`, else false.",
    )
    on_overlap: Literal["skip", "queue"] = Field(
        "skip", description="What to do if the job would start while its last launch is active."
    )
    timeout: Duration | None = Field(None, description="How long one launch may take.")
    tags: dict[str, str] = Field({}, description="Labels of the job in the workspace.")
    permissions: tuple[Permission, ...] = Field(
        (),
        description="Who else may see, run or manage the job. Its owner is the user who "
        "applied it.",
    )
    budget: str | None = Field(
        None, description="The budget policy that pays for the job: its id or its name."
    )
    on_finish: Mails | None = Field(None, description="Who gets a mail when a launch has ended.")
    lifecycle: Lifecycle = Field(
        Lifecycle.model_construct(), description="What plans may do to the job."
    )
    backend: Backend | None = Field(
        None,
        description="Where the job is kept; default: the backend of its run, or "
        "`databricks` for a notebook.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.run is None) == (self.notebook is None):
            raise problem(
                "contradiction",
                "a job has either `run` or `notebook`",
                "`run: NAME` launches a run of this project",
            )
        if self.schedule is not None and self.trigger is not None:
            raise problem(
                "contradiction",
                "`schedule` and `trigger` exclude each other",
                "for a fixed period write `trigger: {every: 6h}`",
            )
        return self
