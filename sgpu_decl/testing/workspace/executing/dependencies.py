"""What a task's environment declares beside its base, installed for its nodes.

The platform installs it from an index. Here it comes from a folder of wheels, with no network, into
an environment on top of that of the nodes' interpreter.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["NotInstalled", "declared_dependencies", "installed"]

_PATCH = """\
import site, sys
known = [path for path in sys.path if path.endswith("-packages")]
lines = "".join(f"import site; site.addsitedir({path!r})\\n" for path in known)
print(lines, end="")
"""


class NotInstalled(Exception):
    """A dependency cannot be installed; the message is what the run's state says."""


def declared_dependencies(settings: Mapping[str, Any], task: Mapping[str, Any]) -> tuple[str, ...]:
    """What the environment of a task asks for."""
    key = task.get("environment_key")
    for one in settings.get("environments") or ():
        if one.get("environment_key") == key:
            return tuple((one.get("spec") or {}).get("dependencies") or ())
    return ()


def installed(python: str, dependencies: tuple[str, ...], wheels: Path, folder: Path) -> str:
    """Install into a new environment in `folder`; its interpreter, which finds what `python` finds
    too.

    Raises:
        NotInstalled: it cannot be made, or there is no such wheel.
    """
    _run(python, "-m", "venv", str(folder))
    own = str(folder / "bin" / "python")
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "of_nodes.pth").write_text(_run(python, "-c", _PATCH))
    _run(
        own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
        "--find-links", str(wheels), "--", *dependencies,
    )  # fmt: skip
    return own


def _run(*argv: str) -> str:
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    if said.returncode != 0:
        last = (said.stderr or said.stdout).strip().rpartition("\n")[2]
        raise NotInstalled(f"Library installation failed: {last}")
    return said.stdout
