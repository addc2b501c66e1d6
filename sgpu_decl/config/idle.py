"""`idle`: what happens to a run that does nothing with what it holds."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, create_model

from sgpu_decl.config.block import Block
from sgpu_decl.config.text_types import Duration, Percent, problem
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.gpu import GPUType

if TYPE_CHECKING:
    from sgpu_decl.config.run_reader import DeclaredRun

_SHORTEST = 1.0  # seconds: nothing is measured more often


def _long_enough(value: Duration) -> Duration:
    if value.seconds < _SHORTEST:
        raise problem("bad_duration", "{path} must be 1 s or longer", "write `20m`")
    return value


class _Idle(Block):
    below: Percent = Field(
        Percent(5.0),
        description="What counts as idle: each GPU of a node ran a kernel for less than this share "
        "of the time. Where no GPU can be measured, it is the use of a processor by each rank.",
    )

    @property
    def seconds(self) -> float:
        """How long a run is idle before something happens."""
        return float(getattr(self, "for").seconds)


if TYPE_CHECKING:

    class Idle(_Idle):
        then: Literal["warn", "stop"] = "warn"

else:  # `for` is a word of Python's own
    Idle = create_model(
        "Idle",
        __base__=_Idle,
        __module__=__name__,
        **{
            "for": (
                Annotated[Duration, AfterValidator(_long_enough)],
                Field(Duration(1200.0), description="How long; the mean over this time counts."),
            )
        },
        then=(
            Literal["warn", "stop"],
            Field(
                "warn",
                description="`warn`: say so in `status`, `top` and the events. `stop`: end the run "
                "as well; it fails with the class `timeout`, and is not started again.",
            ),
        ),
    )


def unmeasured(
    runs: "Iterable[DeclaredRun]", places: Mapping[str, Place]
) -> tuple[Diagnostic, ...]:
    """Warn where `idle` has no effect: Ray's workers are not below the ranks, and without GPUs
    nothing else is measured."""
    configs = [run.config for run in runs]
    if not any(one.idle and one.ray and one.type.kind is GPUType.CPU for one in configs):
        return ()
    return (
        Diagnostic(
            code="idle_unmeasured",
            severity=Severity.WARNING,
            summary="`idle` has no effect: of a run with `ray`, only GPUs are measured",
            place=places.get("idle"),
            hint="remove `idle`, or use `progress_timeout`",
        ),
    )
