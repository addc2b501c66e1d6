"""A job: what a scheduler starts, again and again."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from sgpu_decl.config.backend import Backend
from sgpu_decl.config.block import Block, Flag, Name, Positive, name_or_address
from sgpu_decl.config.job_tasks import Notebook, Task
from sgpu_decl.config.on_finish import Mail, Mails
from sgpu_decl.config.other_tool_keys import (
    EVENT_KEYS,
    HEALTH_KEYS,
    JOB_KEYS,
    NOTIFY_KEYS,
    PERMISSION_KEYS,
    RECIPIENT_KEYS,
    TRIGGER_KEYS,
)
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


def _whole_seconds(value: Duration) -> Duration:
    if value.seconds < 1 or value.seconds % 1:
        raise problem("bad_duration", "{path} must be a whole number of seconds", "such as `3h`")
    return value


def _period(value: Duration) -> Duration:
    if value.seconds <= 0 or value.seconds % PERIODS["minutes"]:
        raise problem("bad_duration", "{path} must be a whole number of minutes", "such as `6h`")
    return value


def _at_least_a_minute(value: Duration) -> Duration:
    if value.seconds < PERIODS["minutes"] or value.seconds % 1:
        raise problem(
            "bad_duration", "{path} must be at least a minute, in whole seconds", "such as `5m`"
        )
    return value


_Calm = Annotated[Duration, AfterValidator(_at_least_a_minute)] | None
"""Source: https://docs.databricks.com/aws/en/jobs/file-arrival-triggers"""


class _Event(Block):
    whole: ClassVar[bool] = True

    min_time_between: _Calm = Field(
        None, description="The least time between two starts, at least a minute."
    )
    wait_after_last_change: _Calm = Field(
        None,
        description="How long the job waits after the last change, at least a minute.",
    )


class FileArrival(_Event):
    """New files in a folder start a job."""

    short: ClassVar[str | None] = "url"
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = EVENT_KEYS

    url: Annotated[str, AfterValidator(_folder_url)] = Field(
        description="A folder of Unity Catalog; short form: `file_arrival: FOLDER`."
    )


class TableUpdate(_Event):
    """Changed tables start a job."""

    other_tools: ClassVar[Mapping[str, OtherToolKey]] = EVENT_KEYS

    tables: Annotated[tuple[str, ...], AfterValidator(_tables)] = Field(
        description="Tables of Unity Catalog; short form: `table_update: [TABLE, …]`."
    )
    condition: Literal["any_updated", "all_updated"] = Field(
        "any_updated", description="Whether one changed table is enough, or all must have changed."
    )


def _by_url(value: object) -> object:
    """A folder is short for the block."""
    return {"url": value} if isinstance(value, str) else value


def _by_tables(value: object) -> object:
    """A list of tables is short for the block."""
    return {"tables": value} if isinstance(value, list | tuple) else value


class Trigger(Block):
    """What starts a job: one of these."""

    whole: ClassVar[bool] = True

    other_tools: ClassVar[Mapping[str, OtherToolKey]] = TRIGGER_KEYS

    every: Annotated[Duration, AfterValidator(_period)] | None = Field(
        None, description="Time between two starts, in whole minutes: `30m`, `6h`, `7d`."
    )
    file_arrival: Annotated[FileArrival | None, BeforeValidator(_by_url)] = Field(
        None, description="A folder of Unity Catalog: new files in it start the job."
    )
    table_update: Annotated[TableUpdate | None, BeforeValidator(_by_tables)] = Field(
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


PARAMETER = r"^[A-Za-z0-9_.-]{1,100}$"
"""The name of a parameter. Source: https://docs.databricks.com/aws/en/jobs/job-parameters"""


class RunAs(Block):
    """Whose rights the launches of a job have."""

    whole: ClassVar[bool] = True
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = PERMISSION_KEYS

    user: str | None = Field(None, min_length=1, description="A user, by their mail address.")
    service_principal: str | None = Field(
        None, min_length=1, description="A service principal, by its application id."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.user is None) == (self.service_principal is None):
            raise problem(
                "contradiction",
                "{path} is either a `user` or a `service_principal`",
                "keep one of them",
            )
        return self


class Health(Block):
    """Which launches of a job are slow."""

    other_tools: ClassVar[Mapping[str, OtherToolKey]] = HEALTH_KEYS

    longer_than: Annotated[Duration, AfterValidator(_whole_seconds)] = Field(
        description="A launch that takes longer is slow: the platform tells `notify.slow`, and the "
        "launch goes on."
    )


class Recipient(Block):
    """Who is told: a mail address, or a destination of the workspace."""

    short: ClassVar[str | None] = "email"
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = RECIPIENT_KEYS

    email: Mail | None = Field(None, description="A mail address; short form: the address alone.")
    webhook: str | None = Field(
        None, min_length=1, description="The id of a notification destination of the workspace."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.email is None) == (self.webhook is None):
            raise problem(
                "contradiction",
                "{path} is either an `email` or a `webhook`",
                "write two entries for both",
            )
        return self


def _by_email(value: object) -> object:
    """A mail address is short for the block."""
    return {"email": value} if isinstance(value, str) else value


_Recipients = tuple[Annotated[Recipient, BeforeValidator(_by_email)], ...]


class Notify(Block):
    """Whom the platform tells of the launches of a job."""

    other_tools: ClassVar[Mapping[str, OtherToolKey]] = NOTIFY_KEYS

    start: _Recipients = Field((), description="Who is told when a launch starts.")
    success: _Recipients = Field((), description="Who is told when a launch has succeeded.")
    failure: _Recipients = Field((), description="Who is told when a launch has failed.")
    slow: _Recipients = Field(
        (), description="Who is told when a launch takes longer than `health.longer_than`."
    )


def _job_name(text: str) -> str:
    """`nightly`, also where its address is written: `job.nightly`."""
    return text.removeprefix("job.")


OldName = Annotated[str, Field(pattern=name_or_address("job")), AfterValidator(_job_name)]


class Job(Block):
    """What is started by the clock or by an event: a run of the project, a notebook, or several
    tasks (a Lakeflow job on Databricks)."""

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
    tasks: dict[Name, Task] = Field(
        {},
        description="The tasks of the job by name, instead of `run` or `notebook`; `after` puts "
        "them in order.",
    )
    parameters: dict[Annotated[str, Field(pattern=PARAMETER)], str] = Field(
        {},
        description="The parameters of the job and their defaults. Notebooks find them as widgets; "
        "other tasks name them: `${job.parameters.NAME}`.",
    )
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
    queue: Flag | None = Field(
        None, description="`true` is `on_overlap: queue`, `false` is `on_overlap: skip`."
    )
    max_concurrent_runs: Positive = Field(
        1,
        description="How many launches may be active at once. A job that launches a run has one.",
    )
    timeout: Duration | None = Field(None, description="How long one launch may take.")
    health: Health | None = Field(None, description="Which launches are slow.")
    run_as: RunAs | None = Field(
        None, description="Whose rights launches have; default: those of the job's owner."
    )
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
    notify: Notify | None = Field(
        None, description="Who is told of starts, ends and slow launches, instead of `on_finish`."
    )
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
        kinds = [name for name in ("run", "notebook", "tasks") if getattr(self, name)]
        if len(kinds) != 1:
            raise problem(
                "contradiction",
                "a job has either `run` or `notebook`, or `tasks`",
                "`run: NAME` launches a run of this project",
            )
        if self.schedule is not None and self.trigger is not None:
            raise problem(
                "contradiction",
                "`schedule` and `trigger` exclude each other",
                "for a fixed period write `trigger: {every: 6h}`",
            )
        if self.queue is not None and "on_overlap" in self.model_fields_set:
            raise problem(
                "contradiction", "`queue` and `on_overlap` say the same", "keep `on_overlap`"
            )
        if self.on_finish is not None and self.notify is not None:
            raise problem(
                "contradiction",
                "`notify` and `on_finish` exclude each other",
                "write mail addresses into `notify`, too",
            )
        if self.max_concurrent_runs > 1 and self.launched_runs:
            raise problem(
                "contradiction",
                "`max_concurrent_runs` is 1 where a job launches a run: the nodes of two launches "
                "would share a folder",
                "remove it, or write `on_overlap: queue`",
            )
        return self

    @property
    def queues(self) -> bool:
        """Whether a launch waits for the one before."""
        return self.on_overlap == "queue" if self.queue is None else self.queue

    @property
    def launched_runs(self) -> tuple[str, ...]:
        """The names of the runs of the project that it launches, each once."""
        named = (self.run, *(task.run for task in self.tasks.values()))
        return tuple(dict.fromkeys(name for name in named if name is not None))
