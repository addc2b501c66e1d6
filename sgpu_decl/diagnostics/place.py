"""A place in a file that a user wrote."""

from dataclasses import dataclass

__all__ = ["Place"]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """`file` as the user named it; `line` and `column` count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def to_json(self) -> dict[str, str | int]:
        return {"file": self.file, "line": self.line, "column": self.column}
