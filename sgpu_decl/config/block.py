"""What every block of the YAML shares, and the types of fields that several have: names, paths, the
URL of a workspace. A relative path means the folder of the file that it stands in, and a project
reads files of several folders: there, each path is made relative to the project's folder."""

import posixpath
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt

from sgpu_decl.config.text_types import problem
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.text.shape import OtherToolKey

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"

Flag = StrictBool
WholeNumber = Annotated[StrictInt, Field(ge=0)]
Positive = Annotated[StrictInt, Field(ge=1)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


def name_or_address(kind: str) -> str:
    """The pattern of a name that may be written as an address, `run.train`."""
    return NAME_PATTERN.replace("^", rf"^({kind}\.)?", 1)


class Block(BaseModel):
    """Frozen, and unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        protected_namespaces=(),
        hide_input_in_errors=True,
        allow_inf_nan=False,
        defer_build=True,  # blocks inside of others need no validator of their own
    )

    short: ClassVar[str | None] = None
    """The field that a value in the place of the block stands for: `backend: ray`."""

    whole: ClassVar[bool] = False
    """Whether a target or a job replaces the block of `defaults`, and is not merged with it."""

    elsewhere: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Names that one may look for here in vain, and why they are not."""

    other_tools: ClassVar[Mapping[str, OtherToolKey]] = MappingProxyType({})
    """Names that other tools have for fields of this block."""

    def __eq__(self, other: object) -> bool:
        """By the fields alone: a block has neither private nor extra ones, which pydantic adds."""
        if self is other:
            return True
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Itself: it never changes, and pydantic would copy a default block for every run."""
        return self


Value = TypeVar("Value")


def _or_none(value: Value) -> Value | None:
    return value or None


NONE_IF_EMPTY = AfterValidator(_or_none)
"""Makes an empty value the same as a missing one in the spec of a run."""


_NAMED = re.compile(r"([A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\])?\s*@\s*)(\S.*)")
_SECRET_FILE = "file:"  # noqa: S105  the scheme of a reference
_STORE = re.compile(r"(sqlite:///(?!:memory:)|file:)?(?!/)(.+)")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FilePath:
    """Stands beside the type of a field whose text is, or holds, a path.

    Attributes:
        moved: returns the text as it is written in another folder, given the way from there to the
            folder of its file.
    """

    moved: Callable[[str, str], str]


def _path(text: str, folder: str) -> str:
    """Absolute paths and those of a user's home stay."""
    if not text or text.startswith(("/", "~")):
        return text
    return posixpath.normpath(posixpath.join(folder, text))


def _interpreter(text: str, folder: str) -> str:
    """A version, such as `3.11`, is no path: what has a `/` is one."""
    if "/" not in text:
        return text
    moved = _path(text, folder)
    return moved if "/" in moved else f"./{moved}"


def _requirement(line: str, folder: str) -> str:
    """A requirement may name a wheel: `./wheels/tool-1.0-py3-none-any.whl`, `tool @ wheels/t.whl`.
    Where it goes on after the path (` ; python_version…`), the rest stays."""
    named = _NAMED.fullmatch(line)
    head, target = (named[1], named[2]) if named else ("", line)
    if _SCHEME.match(target) or not (named or _looks_local(target)):
        return line
    path, space, rest = target.partition(" ")
    moved = _path(path, folder)
    if not named and "/" not in moved:  # `wheel.whl` is a path by its ending, `../a` by its start
        moved = f"./{moved}"
    return f"{head}{moved}{space}{rest}"


def _looks_local(target: str) -> bool:
    start = target.partition("[")[0].partition(";")[0]
    return start.startswith((".", "~")) or "/" in start or start.rstrip().endswith(".whl")


def _secret(text: str, folder: str) -> str:
    """A reference to a secret; of those, `file:PATH` has a path."""
    if not text.startswith(_SECRET_FILE):
        return text
    return _SECRET_FILE + _path(text.removeprefix(_SECRET_FILE), folder)


def _location(text: str, folder: str) -> str:
    """A URI or a path. The path keeps a start that no URI has."""
    if _SCHEME.match(text):
        return text
    moved = _path(text, folder)
    return moved if moved.startswith(("/", "~", "..")) else f"./{moved}"


def _store(text: str, folder: str) -> str:
    """A tracking URI of MLflow, as `tracking/store_location.py` reads it: SQLite files, `file:` and
    bare paths may be relative."""
    match = _STORE.fullmatch(text)
    if match is None or text == "databricks":
        return text
    if match[1] is None:
        return _location(text, folder)
    path, mark, query = match[2].partition("?")
    return f"{match[1]}{posixpath.normpath(posixpath.join(folder, path))}{mark}{query}"


PATH = FilePath(_path)
INTERPRETER = FilePath(_interpreter)
REQUIREMENT = FilePath(_requirement)
SECRET = FilePath(_secret)
LOCATION = FilePath(_location)
STORE = FilePath(_store)


_HOST = re.compile(r"(https?://)?([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)(:\d{1,5})?/?")


def _in_one_form(value: str) -> str:
    match = _HOST.fullmatch(value)
    if match is None:
        raise problem(
            "bad_host",
            "{path} must be the URL of a workspace",
            "such as `https://dbc-1234.cloud.databricks.com`, with nothing behind it",
        )
    return f"{match[1] or 'https://'}{match[2].lower()}{match[3] or ''}"


WorkspaceUrl: TypeAlias = Annotated[str, AfterValidator(_in_one_form)]
"""Each workspace has one text."""
