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

__all__ = ["ProgramCheck"]

# Programs that get the name that was probably meant: to look for it among all programs takes
# milliseconds, and each cell of a sweep may name another program.
_MOST_HINTS = 10


class ProgramCheck:
    """Warns of programs that ranks cannot start. A command of text is left to bash, and a declared
    environment may bring the program: it comes first on the PATH, and need not be built yet."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """`environ` is the environment of this process, which ranks inherit."""
        self._environ = environ
        self._closest: dict[tuple[str, str], str | None] = {}

    def check(
        self, config: "RunConfig", places: Mapping[str, Place], folder: Path
    ) -> Sequence[Diagnostic]:
        """What is wrong with the program of a run; `code.root` is relative to `folder`."""
        command = config.command
        if not isinstance(command, Sequence) or isinstance(command, str) or config.ray is not None:
            return ()
        missing = self._missing(command[0], config, folder)
        if missing is None:
            return ()
        summary, hint = missing
        place = places.get("command")
        return (
            Diagnostic(
                code="program_missing",
                severity=Severity.WARNING,
                summary=summary,
                place=place,
                hint=hint,
            ),
        )

    def _missing(self, program: str, config: "RunConfig", folder: Path) -> tuple[str, str] | None:
        """What to say of a program that is not there, and what to do."""
        if "/" in program:
            found = folder / (config.code.root or ".") / program
            if os.access(found, os.X_OK) and not found.is_dir():
                return None
            if found.is_file():
                return f"the program `{program}` is not executable", f"`chmod +x {program}`"
            return f"the program `{program}` does not exist", "correct the path"
        env = config.env
        if env.origins or env.use or "PATH" in env.secrets:
            return None
        path = env.variables.get("PATH") or self._environ.get("PATH") or os.defpath
        if shutil.which(program, path=path) is not None:
            return None
        closest = self._nearest(program, path)
        hint = f"did you mean `{closest}`?" if closest else "correct the name, or install it"
        return f"there is no program `{program}` on the PATH of the ranks", hint

    def _nearest(self, program: str, path: str) -> str | None:
        key = (program, path)
        if key not in self._closest:
            if len(self._closest) == _MOST_HINTS:
                return None
            self._closest[key] = nearest(program, _programs(path))
        return self._closest[key]


def _programs(path: str) -> Iterator[str]:
    for folder in path.split(os.pathsep):
        try:
            yield from os.listdir(folder or ".")
        except OSError:
            continue
