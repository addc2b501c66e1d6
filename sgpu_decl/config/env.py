"""`env`: the Python environment of the ranks and the variables they see."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from sgpu_decl.config.block import (
    INTERPRETER,
    NONE_IF_EMPTY,
    PATH,
    REQUIREMENT,
    SECRET,
    Block,
    Flag,
)
from sgpu_decl.config.cross_field import ORIGINS
from sgpu_decl.config.other_tool_keys import ENVIRONMENT_KEYS
from sgpu_decl.config.text_types import Textual, problem
from sgpu_decl.text.shape import OtherToolKey

_FORMS = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    "file": re.compile(r"[^\0]+"),
    "databricks": re.compile(r"[A-Za-z0-9_.@-]{1,128}/[A-Za-z0-9_.@-]{1,128}"),
}
_HINT = "write `env:NAME`, `file:PATH` or `databricks:scope/key`"


class SecretRef(Textual, str):
    """Where a secret's value is found at launch; never the value. `scheme:reference`."""

    __slots__ = ()
    published: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": r"^env:[A-Za-z_][A-Za-z0-9_]*$|^file:.+$"
        r"|^(databricks:)?[A-Za-z0-9_.@-]+/[A-Za-z0-9_.@-]+$|\$\{",
        "examples": ["env:HF_TOKEN", "databricks:scope/key"],
    }

    @property
    def scheme(self) -> str:
        return self.partition(":")[0]

    @property
    def reference(self) -> str:
        return self.partition(":")[2]

    @classmethod
    def read(cls, value: object) -> "SecretRef":
        """Validate a reference; bare `scope/key` means `databricks:scope/key`.

        Raises:
            PydanticCustomError: it is none; the message never repeats the text, which may be a
                secret itself.
        """
        if isinstance(value, SecretRef):
            return value
        if isinstance(value, str):
            scheme, colon, reference = value.partition(":")
            if not colon and _FORMS["databricks"].fullmatch(value):
                return cls(f"databricks:{value}")
            form = _FORMS.get(scheme) if colon else None
            if form is not None and form.fullmatch(reference):
                return cls(value)
        raise problem("bad_secret", "{path} is not a reference to a secret", _HINT)


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# fmt: off
_RESERVED = frozenset({
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK",
    "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "NUM_NODES", "REPLICA_RANK",
    "MASTER_ADDR", "MASTER_PORT",
})
# fmt: on
_RESERVED_STARTS = ("SGPU_", "TORCHELASTIC_")


@lru_cache(maxsize=4096)  # many runs have the same variables
def refuse_name(name: str) -> tuple[str, str, str] | None:
    """Why a variable cannot have this name: code, words and hint, or `None`."""
    if name in _RESERVED or name.startswith(_RESERVED_STARTS):
        return (
            "reserved_variable",
            f"sgpu sets `{name}` itself, for each rank",
            "remove it; `launch.master_port` sets the port"
            if name == "MASTER_PORT"
            else "remove it, or choose another name",
        )
    if not _NAME.fullmatch(name):
        stem, equals, _ = name.partition("=")
        return (
            "bad_variable_name",
            f"`{name[:60]}` is not the name of a variable",
            f"write `{stem}: value`" if equals else "use letters, digits and _, no digit first",
        )
    return None


def _checked(name: str) -> str:
    refused = refuse_name(name)
    if refused is not None:
        code, summary, hint = refused
        raise problem(code, summary, hint)
    return name


VariableName = Annotated[str, AfterValidator(_checked)]


class EnvironmentBlock(Block):
    """The Python environment: what is installed where ranks run."""

    other_tools: ClassVar[Mapping[str, OtherToolKey]] = ENVIRONMENT_KEYS

    base: str | None = Field(
        None, description="The base environment, such as `gpu-4`; each platform has its own."
    )
    snapshot: Flag = Field(
        default=False,
        description="Capture the packages of the current environment and rebuild them.",
    )
    dependencies: Annotated[tuple[Annotated[str, REQUIREMENT], ...] | None, NONE_IF_EMPTY] = Field(
        None, description="Packages to install, as requirement lines (`torch>=2.6`)."
    )
    requirements: Annotated[str | None, PATH] = Field(
        None, description="A requirements file to install from."
    )
    lock: Annotated[str | None, PATH] = Field(
        None, description="A lock file (pylock.toml or uv.lock) to install."
    )
    python: Annotated[str | None, INTERPRETER] = Field(
        None, description="The Python version (`3.11`), or the interpreter's path on `local`."
    )

    @property
    def origins(self) -> tuple[str, ...]:
        """The fields that declare an environment; none where ranks use an interpreter as it is."""
        return tuple([item for item in ORIGINS if getattr(self, item)])


class Env(EnvironmentBlock):
    """What ranks find: packages, variables and secrets."""

    short: ClassVar[str | None] = "use"

    use: str | None = Field(
        None,
        description="The name of one of the project's `environments`; short form: `env: NAME`.",
    )
    variables: dict[VariableName, str] = Field(
        {},
        description="Environment variables of the ranks. Values are text, exactly as written.",
    )
    secrets: dict[VariableName, Annotated[SecretRef, SECRET]] = Field(
        {},
        description="Environment variables whose values are read at launch and never stored: "
        "`env:NAME` and `file:PATH` by sgpu, `databricks:scope/key` by the nodes.",
    )
