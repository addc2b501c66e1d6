"""The `backend` block of a machine that ssh reaches."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from sgpu_decl.backends.box.box_place import BoxPlace, names_host
from sgpu_decl.config.backend import BackendOptions
from sgpu_decl.config.text_types import problem


def _host(text: str) -> str:
    if not names_host(text):
        raise problem("bad_host", "{path} is no name of a host", "write a name that `ssh` takes")
    return text


class SshOptions(BackendOptions):
    """Ranks run on a machine that `ssh` reaches, by its own configuration."""

    elsewhere: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "hosts": "a run has one `host` so far: declare a run for each machine, or use "
            "`backend: ray` for one run on several",
            "address": "write `host`",
            "user": "write `host: user@name`, or `User` in `~/.ssh/config`",
            "port": "write `Port` in `~/.ssh/config`, or `host: ssh://name:2222`",
            "identity_file": "write `IdentityFile` in `~/.ssh/config`",
            "key": "write `IdentityFile` in `~/.ssh/config`",
            "password": "sgpu asks for none: use a key, or an agent of ssh",
        }
    )

    host: Annotated[str, AfterValidator(_host)] = Field(
        description="The machine, as `ssh` takes it: a name of `~/.ssh/config`, or `user@host`."
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

    @property
    def place(self) -> BoxPlace:
        """The machine, and the folder there."""
        return BoxPlace(self.host, self.storage, self.python)
