"""The files that a declared environment is read from."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.environments.declared.local_sources import local_wheel
from sgpu_decl.environments.package_lists.requirements import RequirementLine, RequirementsReader

if TYPE_CHECKING:
    from sgpu_decl.config.env import EnvironmentBlock

_OF_UV = ("pyproject.toml", "uv.toml")


def fetch_files(block: "EnvironmentBlock", folder: Path, fetch: Callable[[Path], None]) -> None:
    """Call `fetch` with each file that a declared environment is read from, before that file is
    opened: which files a requirements file includes is known only once it is there.

    Args:
        folder: the base of relative paths.
    """
    reader = RequirementsReader(constraints=True, fetch=fetch)
    lines = [
        RequirementLine(text=text.strip(), place=None, folder=folder)
        for text in block.dependencies or ()
    ]
    found = [item for line in lines for item in reader.line(line)]
    named = block.requirements or block.lock
    if named is not None:
        file = folder / os.path.expanduser(named)
        if file.suffix in (".toml", ".lock"):
            for path in (file, *(file.with_name(name) for name in _OF_UV)):
                fetch(path)
        else:
            found += reader.file(file, named)
    for item in found:
        wheel = local_wheel(item.text) if isinstance(item, RequirementLine) else None
        if wheel is not None:  # uv takes its path from its working folder, whatever file names it
            fetch(folder / os.path.expanduser(wheel))
