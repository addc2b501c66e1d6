"""The arguments of a user's script, as its source shows them."""

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Json

PLACEHOLDER = "CHANGE_ME"
"""The value of an argument that needs one, and has no default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptArgument:
    """One argument of a script or a function.

    Attributes:
        name: an option such as `--lr`, or the name of a positional argument or a parameter.
        kind: its type, choices and default in words.
        given: a run file gives it a value. Others keep what the program does without them.
        words: what a command line says, for a script.
        value: what a call says, for a function.
    """

    name: str
    kind: str = ""
    required: bool = False
    given: bool = False
    words: tuple[str, ...] = ()
    value: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryArguments:
    """How a script is started.

    Attributes:
        function: the function that is called; `None` if the file runs as a script.
        arguments: in the order in which they are written.
        note: what the source does not tell about them.
    """

    function: str | None = None
    arguments: tuple[ScriptArgument, ...] = ()
    note: str | None = None
