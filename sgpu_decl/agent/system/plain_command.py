"""A command that is run without a shell, and without variables that would change what it does."""

from __future__ import annotations

import os
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def run_command(
    words: Sequence[str],
    patience: float,
    *,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    add: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[int, str, str]:
    """Run a command to its end; return its exit code, and what it wrote.

    Args:
        drop: beginnings of the names of variables that it does not get.
        keep: names of those that it gets all the same.
        add: variables that it gets beside.
        environ: the variables, instead of those of this process.

    Raises:
        FileNotFoundError: there is no such program.
        subprocess.TimeoutExpired: it did not end in `patience` seconds.
    """
    variables = os.environ if environ is None else environ
    kept = {
        name: value
        for name, value in variables.items()
        if name in keep or not name.startswith(tuple(drop))
    }
    done = subprocess.run(
        words, env={**kept, **(add or {})}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, errors="replace", timeout=patience, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr
