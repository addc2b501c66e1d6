"""A place in a file that a user wrote."""

from sgpu_decl.frozen_dataclass import dataclass

__all__ = ["Place"]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """`file` as the user named it; `line` and `column` count from 1.

    A value of the command line has its option for a file: `--set args.n`.
    """

    file: str
    line: int
    column: int

    @property
    def is_option(self) -> bool:
        return self.file.startswith("--")

    def __str__(self) -> str:
        if self.is_option:
            return self.file
        return f"{self.file}:{self.line}:{self.column}"

    def to_json(self) -> dict[str, str | int]:
        return {"file": self.file, "line": self.line, "column": self.column}
