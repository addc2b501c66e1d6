"""The `backend` block of a machine that ssh reaches."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from sgpu_decl.backends.box.box_place import BoxPlace
from sgpu_decl.backends.box.host_option import HostName
from sgpu_decl.config.backend import BackendOptions
from sgpu_decl.config.block import Block
from sgpu_decl.config.text_types import problem
from sgpu_decl.tracking.store_location import misread


def _block(value: object) -> object:
    """A name is short for the block."""
    return {"host": value} if isinstance(value, str) else value


class SshHost(Block):
    """A machine of several, by its name for `ssh`, or a mapping."""

    short: ClassVar[str | None] = "host"
    host: HostName = Field(
        description="The machine, as `ssh` takes it.",
    )
    address: HostName | None = Field(
        None,
        description="The address at which the other machines reach it. By default the one at which "
        "`ssh` has reached it, behind any jump host.",
    )


class SshOptions(BackendOptions):
    """Ranks run on a machine that `ssh` reaches, by its own configuration."""

    elsewhere: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "address": "write `host`; of several, `hosts: [{host: gpu1, address: 10.0.0.1}, …]`",
            "user": "write `host: user@name`, or `User` in `~/.ssh/config`",
            "port": "write `Port` in `~/.ssh/config`, or `host: ssh://name:2222`",
            "identity_file": "write `IdentityFile` in `~/.ssh/config`",
            "key": "write `IdentityFile` in `~/.ssh/config`",
            "password": "sgpu asks for none: use a key, or an agent of ssh",
        }
    )

    host: HostName | None = Field(
        None,
        description="The machine, as `ssh` takes it: a name of `~/.ssh/config`, or `user@host`.",
    )
    hosts: tuple[Annotated[SshHost, BeforeValidator(_block)], ...] = Field(
        (),
        description="Several machines for one run, in the place of `host`: each has as many of the "
        "ranks. Rank 0 is on the first.",
    )
    python: str | None = Field(
        None,
        description="The Python of the machine, 3.10 or newer, that sgpu runs by there, and ranks "
        "without an environment. By default the first that is found on its PATH.",
    )
    storage: str = Field(
        "~/.local/share/sgpu/hosted",
        description="A folder of the machine for attempts, code and environments.",
    )

    @field_validator("storage")
    @classmethod
    def _plain(cls, storage: str) -> str:
        if misread(storage):
            raise problem(
                "bad_storage",
                "{path} has a `?` or a `%`, which MLflow misreads in the path of a store",
                "name another folder",
            )
        return storage

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        names = [one.host for one in self.hosts]
        if bool(names) == bool(self.host):
            raise problem(
                "contradiction" if names else "missing_key",
                "{path} has both `host` and `hosts`" if names else "{path} has no `host`",
                "write `host: gpu1`, or `hosts: [gpu1, gpu2]` for one run on several machines",
            )
        if len(set(names)) < len(names):
            raise problem(
                "contradiction",
                "{path} has a machine twice",
                "name each machine once in `hosts`: it has as many ranks as each of the others",
            )
        return self

    @property
    def places(self) -> tuple[BoxPlace, ...]:
        """The machines, and the folder there."""
        named = self.hosts or (SshHost(host=str(self.host)),)
        return tuple(BoxPlace(one.host, self.storage, self.python, one.address) for one in named)
