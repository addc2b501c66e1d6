"""`code`: which files a run takes along."""

from pydantic import Field

from sgpu_decl.config.block import Block

__all__ = ["Code"]


class Code(Block):
    root: str | None = Field(
        None, description="The folder of the code, relative to this file; default: its folder."
    )
    include: tuple[str, ...] = Field(
        (), description="Patterns of files to take although they are ignored."
    )
    exclude: tuple[str, ...] = Field((), description="Patterns of files to leave out.")
    link: tuple[str, ...] = Field(
        (),
        description="Large local data: linked into the run, never copied, not part of the digest "
        "(local backend only).",
    )
