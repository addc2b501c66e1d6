"""A host in a `backend` block."""

from typing import Annotated

from pydantic import AfterValidator

from sgpu_decl.backends.box.box_place import names_host
from sgpu_decl.config.text_types import problem


def _host(text: str) -> str:
    if not names_host(text):
        raise problem(
            "bad_host",
            "{path} is no name of a host",
            "write a name that `ssh` takes, without spaces and no `-` first: `Host` in "
            "`~/.ssh/config` gives a machine one",
        )
    return text


HostName = Annotated[str, AfterValidator(_host)]
"""A machine as `ssh` takes it."""
