"""The interpreter whose environment is looked at."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgpu_decl.agent.environment.manifest import Python
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.environments.captured import asking

__all__ = ["Interpreter", "ask"]

PATIENCE = 60.0  # seconds for another interpreter to say what it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """`sites` are folders that are there, each once, in the order of `sys.path`; `base` is the
    interpreter outside of any virtual environment; `magic` and `cache_tag` are of its bytecode."""

    python: Python
    executable: str
    base: str
    cache_tag: str
    magic: bytes
    sites: tuple[str, ...]


def ask(path: str) -> Interpreter | Diagnostic:
    """Ask an interpreter what it is: this very process where it is its own, else by one call."""
    user_site = "PYTHONNOUSERSITE" not in os.environ
    if os.path.abspath(path) == os.path.abspath(sys.executable):
        return _read(asking.answer(user_site and not sys.flags.no_user_site))
    text = Path(asking.__file__).read_text(encoding="utf-8")
    try:
        said = subprocess.run(
            [path, "-I", "-c", text, *["user"] * user_site],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )
        return _read(json.loads(said.stdout))
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
        told = lines[-1 if lines[0].startswith("Traceback") else 0] if lines else ""
        return _unusable(path, told.strip() or f"it ended with {error.returncode}")
    except subprocess.TimeoutExpired:
        return _unusable(path, f"it said nothing for {PATIENCE:.0f} s")
    except OSError as error:
        return _unusable(path, error.strerror or str(error))
    except (ValueError, KeyError, TypeError):
        return _unusable(path, "what it says of itself cannot be read")


def _read(said: dict[str, Any]) -> Interpreter:
    there: dict[str, str] = {}
    for site in map(os.path.abspath, said["sites"]):
        if os.path.isdir(site):
            there.setdefault(os.path.realpath(site), site)
    return Interpreter(
        python=Python(*map(str, said["python"])),
        executable=said["executable"],
        base=said["base"],
        cache_tag=said["cache_tag"],
        magic=bytes.fromhex(said["magic"]),
        sites=tuple(there.values()),
    )


def _unusable(path: str, why: str) -> Diagnostic:
    return Diagnostic(
        code="interpreter_unusable",
        summary=f"the interpreter `{path}` cannot be asked for its environment: {why}",
        hint="name the Python 3 that runs your code, for example `.venv/bin/python`",
    )
