"""`code`: which files a run takes along."""

import posixpath
from typing import Annotated

from pydantic import AfterValidator, Field

from sgpu_decl.config.block import Block

__all__ = ["Code"]


def _elsewhere(root: str | None) -> str | None:
    """`.` is the folder that is meant where nothing is written."""
    return root if root is not None and posixpath.normpath(root) != "." else None


class Code(Block):
    root: Annotated[str | None, AfterValidator(_elsewhere)] = Field(
        None, description="The folder of the code, relative to this file; default: its folder."
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
