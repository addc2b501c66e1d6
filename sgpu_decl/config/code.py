"""`code`: which files a run takes along."""

import posixpath
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from sgpu_decl.config.block import Block
from sgpu_decl.config.file_paths import PATH
from sgpu_decl.config.other_tool_keys import CODE_KEYS
from sgpu_decl.text.shape import OtherToolKey


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
        "file, or the project's for a run of a project file or a fragment.",
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
        description="Which changes of the code launch the run again. `auto`: those of files that "
        "the run may use, so no documents at the top, `docs/`, settings of CI and editors, "
        "notebooks and tests, unless the run reaches them. `all`: those of all files that travel.",
    )
