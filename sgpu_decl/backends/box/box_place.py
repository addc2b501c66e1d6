"""What files and states say of a box."""

import re
from typing import NamedTuple

_HOST = re.compile(r"(?!-)[\w.:@%+\[\]/-]+")


class BoxPlace(NamedTuple):
    """A machine as ssh takes it, a folder there that may begin with `~`, its Python, None for the
    first that is found, and the address where other machines reach it, None for that of ssh."""

    host: str
    storage: str
    python: str | None = None
    address: str | None = None


def names_host(text: str) -> bool:
    """Whether a text can name a host. Configurations of ssh have shells run commands with it, and
    it may be that of a record that others wrote."""
    return _HOST.fullmatch(text) is not None
