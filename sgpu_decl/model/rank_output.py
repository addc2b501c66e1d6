"""What ranks leave: the lines that they write, and their files; and what they do just now."""

from dataclasses import field
from pathlib import Path

from sgpu_decl.frozen_dataclass import UNWRITTEN, dataclass, written_as
from sgpu_decl.model.attempt import AttemptRef


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLines:
    """Lines of a rank that were written one after the other, without the newline of the last.
    `stream` is `stdout` or `stderr`. `rank` is `None` for what a node says itself. `time_ns` is
    when they were written, since the epoch, `None` where nobody noted that."""

    ref: AttemptRef
    rank: int | None
    stream: str
    text: str
    time_ns: int | None = None

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What ranks left in SGPU_OUTPUT_DIR: the folder here, what is in it, and the names of what is
    lacking, with the reason."""

    folder: Path
    files: int
    bytes: int
    lacking: tuple[str, ...] = ()
    why: str = field(default="", metadata=UNWRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStack:
    """The Python stacks of all threads of a running rank; `text` is `None` where there are none,
    and `reason` says why."""

    rank: int
    pid: int
    text: str | None = field(metadata=written_as("stack"))
    reason: str | None
