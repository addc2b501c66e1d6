"""What a validator of ours raises; pydantic is loaded when something is wrong, or by the blocks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import PydanticCustomError


def problem(
    code: str, summary: str, hint: str | None = None, **more: Any
) -> "PydanticCustomError":  # pydantic's own context is untyped
    """An error of ours for a validator to raise: it keeps its code, words and hint."""
    from pydantic_core import PydanticCustomError

    return PydanticCustomError(
        code,
        "{summary}",
        {"summary": summary, "hint": hint, "ours": True, **more},
    )
