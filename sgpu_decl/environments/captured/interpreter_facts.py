"""What an interpreter says of itself: version, ABI, folders of packages."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgpu_decl.agent.system.marked_answer import MARK, marked_answer
from sgpu_decl.content.manifest import Python
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.environments.captured import interpreter_probe
from sgpu_decl.environments.package_lists.site_folders import virtual_environment

PATIENCE = 60.0  # seconds for an interpreter to answer


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterFacts:
    """`sites` are existing folders, each once, in the order of `sys.path`; `base` is the
    interpreter outside of any virtual environment; `magic` and `cache_tag` describe bytecode."""

    python: Python
    executable: str
    base: str
    cache_tag: str
    magic: bytes
    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnusableInterpreter:
    """A path that is not a working interpreter, and why."""

    path: str
    why: str

    @property
    def diagnostic(self) -> Diagnostic:
        return Diagnostic(
            code="interpreter_unusable",
            summary=f"the interpreter `{self.path}` cannot be asked for its environment: "
            f"{self.why}",
            hint="name the Python 3 that runs your code, for example `.venv/bin/python`",
        )


def ask(path: str, program: str | None = None) -> InterpreterFacts | UnusableInterpreter:
    """Ask an interpreter what it is: this process itself, or another one by running it once.

    Args:
        program: the program that is run in its place: the interpreter that the virtual environment
            at `path` was made from. No `.pth` file of that environment is run then.
    """
    user_site = "PYTHONNOUSERSITE" not in os.environ
    if os.path.abspath(path) == os.path.abspath(sys.executable):
        return _read(interpreter_probe.answer(user_site and not sys.flags.no_user_site))
    prefix = virtual_environment(path) if program not in (None, path) else ""
    text = Path(interpreter_probe.__file__).read_text(encoding="utf-8")
    try:
        answer = subprocess.run(
            [program or path, "-I", "-c", text, "user" if user_site else "", prefix, MARK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )
        facts = _read(json.loads(marked_answer(answer.stdout)))
        return facts if program in (None, path) else replace(facts, executable=path)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
        last_line = lines[-1 if lines[0].startswith("Traceback") else 0] if lines else ""
        return UnusableInterpreter(path, last_line.strip() or f"it ended with {error.returncode}")
    except subprocess.TimeoutExpired:
        return UnusableInterpreter(path, f"it gave no answer for {PATIENCE:.0f} s")
    except OSError as error:
        return UnusableInterpreter(path, error.strerror or str(error))
    except (ValueError, KeyError, TypeError):
        return UnusableInterpreter(path, "its answer cannot be read")


def _read(answer: dict[str, Any]) -> InterpreterFacts:
    sites: dict[str, str] = {}
    for site in map(os.path.abspath, answer["sites"]):
        if os.path.isdir(site):
            sites.setdefault(os.path.realpath(site), site)
    return InterpreterFacts(
        python=Python(*map(str, answer["python"])),
        executable=answer["executable"],
        base=answer["base"],
        cache_tag=answer["cache_tag"],
        magic=bytes.fromhex(answer["magic"]),
        sites=tuple(sites.values()),
    )
