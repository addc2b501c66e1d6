"""Finds the published schemas, the templates, and the example that `init` copies, in a wheel and in
a checkout."""

from functools import cache
from pathlib import Path
from typing import Literal


@cache
def shipped_folder(kind: Literal["schemas", "templates", "examples/gitops"]) -> Path:
    """Return the folder of what is shipped.

    A wheel carries them under `sgpu_decl/_data`; an editable install has them only beside the
    package, at the root of the checkout.

    Raises:
        FileNotFoundError: the installation is incomplete.
    """
    package = Path(__file__).resolve().parent
    shipped = package / "_data" / kind
    if shipped.is_dir():
        return shipped
    checkout = package.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / kind).is_dir():
        return checkout / kind
    raise FileNotFoundError(f"this installation of sgpu lacks its {kind}: install it again")
