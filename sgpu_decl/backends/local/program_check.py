"""Whether the program of a command is there, where the PATH of its ranks is known."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

__all__ = ["check_program"]


def check_program(
    config: "RunConfig", places: Mapping[str, Place], folder: Path, environ: Mapping[str, str]
) -> Sequence[Diagnostic]:
    """Warn of a program that ranks cannot start. A command of text is left to bash, and a declared
    environment may bring the program: it comes first on the PATH, and need not be built yet.

    Args:
        folder: what `code.root` is relative to.
        environ: the environment of this process, which ranks inherit.
    """
    command, env = config.command, config.env
    if not isinstance(command, Sequence) or isinstance(command, str) or config.ray is not None:
        return ()
    program = command[0]
    if "/" in program:
        found = folder / (config.code.root or ".") / program
        if os.access(found, os.X_OK) and not found.is_dir():
            return ()
        lacking = "is not executable" if found.is_file() else "does not exist"
        hint = f"`chmod +x {program}`" if found.is_file() else "correct the path"
        summary = f"the program `{program}` {lacking}"
    else:
        if env.origins or env.use or "PATH" in env.secrets:
            return ()
        path = env.variables.get("PATH") or environ.get("PATH") or os.defpath
        if shutil.which(program, path=path) is not None:
            return ()
        summary = f"there is no program `{program}` on the PATH of the ranks"
        closest = nearest(program, _programs(path))
        hint = f"did you mean `{closest}`?" if closest else "correct the name, or install it"
    return (
        Diagnostic(
            code="program_missing",
            severity=Severity.WARNING,
            summary=summary,
            place=places.get("command"),
            hint=hint,
        ),
    )


def _programs(path: str) -> Iterator[str]:
    for folder in path.split(os.pathsep):
        try:
            yield from os.listdir(folder or ".")
        except OSError:
            continue
