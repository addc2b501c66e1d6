"""The distribution that sgpu is installed as, what it ships beside the code (schemas, templates, an
example), and the commands that install more beside it.

No index has it yet. `sgpu` on PyPI is another project: nothing here may install that name.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Literal

NAME = "sgpu-decl"
FORMER_NAME = "sgpu"  # of installations that are older than `NAME`
SOURCE = "."  # what pip installs sgpu from: its checkout. `NAME`, once an index has it

EXTRAS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "mlflow": ("mlflow>=3.1,<4", "psutil>=5.9,<8", "nvidia-ml-py>=12.535"),
    "databricks": ("databricks-sdk>=0.60,<1",),
    "postgres": ("psycopg[binary]>=3.2,<4",),
    "object": ("obstore>=0.12,<0.13",),
    "report": ("vl-convert-python>=1.7,<2",),
    "env": ("uv>=0.8,<1",),
    "emulator": ("databricks-sdk>=0.60,<1", "mlflow>=3.1,<4", "psutil>=5.9,<8"),
})  # fmt: skip
"""The requirements of those extras that hints name, as `pyproject.toml` has them. It is not in a
wheel, and the metadata of an installation takes 50 ms to read."""


def extra_command(extra: str) -> str:
    """The command that installs what an extra names beside sgpu. It names the packages, because
    neither a checkout nor a wheel has to be there any more."""
    if os.path.isfile(os.path.join(sys.prefix, "pipx_metadata.json")):
        return shlex.join(["pipx", "inject", os.path.basename(sys.prefix), *EXTRAS[extra]])
    return pip_command("install", *EXTRAS[extra])


def pip_command(verb: str, *words: str) -> str:
    """A command of pip for the environment that sgpu runs in, for a shell of its user: `pip` alone
    may be that of another one, and environments that uv made have none."""
    beside = os.path.join(os.path.dirname(sys.executable), "pip")
    if shutil.which("pip") == beside:
        return shlex.join(["pip", verb, *words])
    if find_spec("pip") is not None:
        return shlex.join([sys.executable, "-m", "pip", verb, *words])
    return shlex.join(["uv", "pip", verb, "--python", sys.executable, *words])


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
