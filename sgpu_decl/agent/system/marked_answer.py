"""The answer of a program among what else it prints: a `.pth` file or `sitecustomize` of an
interpreter, or a shim before it, may write to stdout too, before and after."""

from __future__ import annotations

MARK = "sgpu answers: "
"""What stands before the answer, which is the rest of its line."""


def marked_answer(output: bytes) -> str:
    """The last answer in the output of a program.

    Raises:
        ValueError: there is none.
    """
    _, mark, rest = output.decode("utf-8", "replace").rpartition(MARK)
    if not mark:
        raise ValueError("there is no answer")
    return rest.splitlines()[0] if rest else ""
