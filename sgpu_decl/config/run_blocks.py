"""The blocks of a run that have a few fields each: `launch`, `code`, `logs`, `mlflow`, `retry`,
`lifecycle` and `permissions`."""

import posixpath
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictInt,
    Tag,
    model_validator,
)

from sgpu_decl.config.block import LOCATION, PATH, STORE, Block, Flag, WholeNumber
from sgpu_decl.config.other_tool_keys import CODE_KEYS, MLFLOW_KEYS, PERMISSION_KEYS, RETRY_KEYS
from sgpu_decl.config.text_types import Duration, problem
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.model.permission_names import PLATFORM_LEVELS
from sgpu_decl.text.shape import OtherToolKey


def _form(value: object) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<word>"


Warm = Annotated[
    Annotated[Literal["auto", "off"], Tag("<word>")] | Annotated[tuple[str, ...], Tag("<list>")],
    Discriminator(_form),
]


class Launch(Block):
    per: Literal["rank", "node"] = Field(
        "rank",
        description="`rank`: one process per GPU. `node`: a command that starts its own ranks.",
    )
    warm: Warm = Field(
        "auto",
        description="Ranks fork from one process that has imported these modules: `auto` (those "
        "that the entrypoint imports first, if torch is one of them), `off`, or a list.",
    )
    master_port: Annotated[StrictInt, Field(ge=1, le=65535)] | None = Field(
        None, description="The port at which ranks meet (`MASTER_PORT`); default: a free port."
    )
    flight_recorder: Literal["on", "off"] = Field(
        "on",
        description="Whether torch records the collectives of ranks, and ranks tell their monitor "
        "which they wait in: `on` or `off`.",
    )


class Count(StrEnum):
    """Which files of the code count."""

    AUTO = "auto"
    ALL = "all"


def _elsewhere(root: str | None) -> str | None:
    """`.` is the folder that is meant where nothing is written."""
    return root if root is not None and posixpath.normpath(root) != "." else None


class Code(Block):
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = CODE_KEYS

    root: Annotated[str | None, PATH, AfterValidator(_elsewhere)] = Field(
        None,
        description="The folder of the code, relative to this file; default: the folder of the run "
        "file, or the project folder for a run in a project file or in a file that it includes.",
    )
    include: tuple[str, ...] = Field(
        (), description="Patterns of files that are code although an ignore file excludes them."
    )
    exclude: tuple[str, ...] = Field((), description="Patterns of files that are not code.")
    link: tuple[str, ...] = Field(
        (),
        description="Large local data: linked into the run, never copied, not part of the digest "
        "(local backend only).",
    )
    count: Count = Field(
        Count.AUTO,
        description="Which changed files launch the run again. `auto`: files that the run may "
        "use. Documents at the top, `docs/`, settings of CI and editors, notebooks and tests "
        "count only if the run reaches them. `all`: all files that ranks get.",
    )


class Logs(Block):
    redact: Flag = Field(
        default=False,
        description="Also mask values of `env.secrets` in the log files of Python ranks. Output "
        "that sgpu shows is always masked.",
    )


class Mlflow(Block):
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = MLFLOW_KEYS

    enabled: Flag = Field(
        default=True,
        description="Whether each attempt gets an MLflow run. A written `true` is an error if "
        "MLflow is not installed.",
    )
    experiment: str | None = Field(
        None,
        min_length=1,
        description="The experiment; default: MLFLOW_EXPERIMENT_NAME, else the run's name.",
    )
    run_name: str | None = Field(
        None, min_length=1, description="The MLflow run's name; default: `name#attempt`."
    )
    tracking_uri: Annotated[str | None, STORE] = Field(
        None,
        min_length=1,
        description="The MLflow server or store; default: MLFLOW_TRACKING_URI, else a local "
        "database "
        "under `.sgpu/`.",
    )
    artifact_location: Annotated[str | None, LOCATION] = Field(
        None,
        min_length=1,
        description="Where a new experiment keeps its artifacts: a folder, a volume "
        "(`/Volumes/...`) or a URI. An existing experiment keeps its location.",
    )
    system_metrics: Flag = Field(
        default=True, description="Whether CPU, memory and GPU use is logged."
    )


_FIRST_BACKOFF = Duration(1.0)


class Retry(Block):
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = RETRY_KEYS

    max: WholeNumber = Field(0, description="The largest number of restarts within one attempt.")
    on: tuple[Literal["infra", "error"], ...] = Field(
        ("infra",),
        description="Which failures lead to a restart: `infra` (the machine), `error` (the user's "
        "code).",
    )
    backoff: Duration | None = Field(
        None,
        description="The wait before the first restart, a second by default. It doubles for each "
        "further restart, up to a minute, or up to `backoff` if that is longer.",
    )

    @property
    def first_backoff(self) -> Duration:
        """The wait before the first restart."""
        return self.backoff or _FIRST_BACKOFF


class Lifecycle(Block):
    prevent_destroy: Flag = Field(
        default=False,
        description="Refuse any plan that would destroy the run or replace it while active.",
    )
    ignore_changes: tuple[str, ...] = Field(
        (), description="Dotted paths of fields whose changes are ignored (`env.variables.SEED`)."
    )


_OF_PLATFORM = re.compile(r"[A-Z][A-Z_]*_[A-Z_]*")


def _level(value: object) -> object:
    """A level of ours, or one that a platform may have."""
    if not isinstance(value, str) or value in PLATFORM_LEVELS or _OF_PLATFORM.fullmatch(value):
        return value
    near = nearest(value, PLATFORM_LEVELS)
    raise problem(
        "unknown_value",
        "{path} must be `view`, `run` or `manage`, not {given}",
        f"did you mean `{near}`?"
        if near
        else "or the name that the platform has for a level, such as `CAN_VIEW`",
    )


class Permission(Block):
    other_tools: ClassVar[Mapping[str, OtherToolKey]] = PERMISSION_KEYS

    level: Annotated[
        str,
        Field(pattern=rf"^({'|'.join(PLATFORM_LEVELS)}|{_OF_PLATFORM.pattern})$|\$\{{"),
        BeforeValidator(_level),
    ] = Field(
        description="The level: `view`, `run` or `manage`, or the platform's own name of a level, "
        "such as `CAN_VIEW`."
    )
    user: str | None = Field(None, description="A user's name.")
    group: str | None = Field(None, description="A group's name.")
    service_principal: str | None = Field(None, description="A service principal's id.")

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        if (
            len([holder for holder in (self.user, self.group, self.service_principal) if holder])
            != 1
        ):
            raise problem(
                "contradiction",
                "{path} is for one of `user`, `group` and `service_principal`",
                "write `{level: view, group: users}`, one entry for each",
            )
        return self
