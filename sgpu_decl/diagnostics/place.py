"""A place in a file that a user wrote."""

from sgpu_decl.frozen_dataclass import dataclass

VARIABLE_PREFIX = "SGPU_VAR_"
"""What an environment variable begins with that gives a variable of a file its value."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """`file` as the user named it; `line` and `column` count from 1.

    A value of the command line has its option for a file: `--set args.n`; one of the environment
    has its variable.
    """

    file: str
    line: int
    column: int

    @property
    def is_option(self) -> bool:
        return self.file.startswith(("--", VARIABLE_PREFIX))

    def __str__(self) -> str:
        if self.is_option:
            return self.file
        return f"{self.file}:{self.line}:{self.column}"

    def to_json(self) -> dict[str, str | int]:
        return {"file": self.file, "line": self.line, "column": self.column}
