"""`backend`: where ranks run. What the block may hold is decided by the kind that it names."""

from functools import cache
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field, SerializeAsAny, WrapValidator

from sgpu_decl.config.block import Block
from sgpu_decl.config.text_types import Size, problem
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError
from sgpu_decl.model.backend_kinds import DEFAULT, kind_named, our_kinds, remote_kind

__all__ = [
    "DEFAULT",
    "Backend",
    "BackendOptions",
    "known_options",
    "options_of",
    "read_backend",
    "remote_kind",
]


class BackendOptions(Block):
    """A backend's name, or a mapping with its `kind`.

    These are the fields that all kinds have. The options of a kind are a class below this one, with
    its own fields.
    """

    short: ClassVar[str | None] = "kind"
    kind: str = Field(DEFAULT, description="The kind of backend.")
    environment_limit: Size = Field(
        Size(15 << 30),
        description="The largest size of a captured environment.",
    )


def options_of(kind: str) -> type[BackendOptions]:
    """The model of the block for a kind.

    Raises:
        BackendError: there is no such kind, or the package that has it does not load.
    """
    return cast("type[BackendOptions]", kind_named(kind).options())


@cache
def known_options() -> dict[str, type[BackendOptions]]:
    """The models of the kinds that come with sgpu, by name."""
    return {kind.name: options_of(kind.name) for kind in our_kinds()}


def read_backend(value: Any) -> BackendOptions:
    """Validate a block, or the name of a kind, which is short for one.

    Raises:
        ValidationError: the kind has no such options.
        PydanticCustomError: there is no such kind.
    """
    if isinstance(value, BackendOptions):
        return value
    block = {"kind": value} if isinstance(value, str) else value
    kind = block.get("kind") if isinstance(block, dict) else None
    try:
        model = options_of(kind if isinstance(kind, str) else DEFAULT)
    except BackendError as error:
        refusal = Diagnostic(
            path=("kind",), code=error.code, summary=error.message, hint=error.hint
        )
        raise problem(error.code, error.message, error.hint, all=(refusal,)) from error
    return model.model_validate(block)


Backend = Annotated[
    SerializeAsAny[BackendOptions], WrapValidator(lambda value, _: read_backend(value))
]
