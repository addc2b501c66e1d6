"""The files behind the first cause of a failure: stacks, and the code as it ran."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.agent.attempt.attempt_files import SPEC, read_json
from sgpu_decl.agent.system.safe_files import regular_opener

if TYPE_CHECKING:
    from typing import Any

    from sgpu_decl.model.attempt_details import CodeCopy, FirstCause

_FRAME = r'(?m)^ *File "([^"\n]+)", line \d+'


def read_spec(folder: Path) -> "dict[str, Any] | None":
    """The `spec.json` of an attempt, for who looks at it: `code_root`, `code_dir` and `secrets` are
    there. None where it is missing, or something else has written it."""
    spec = read_json(os.fspath(folder), SPEC)
    if spec is None or not isinstance(spec.get("code_dir"), str):
        return None
    spec = {"code_root": None, "secrets": {}, **spec}
    root, secrets = spec["code_root"], spec["secrets"]
    names = [*secrets, *secrets.values()] if isinstance(secrets, dict) else [None]
    fits = isinstance(root, str | None) and all(isinstance(name, str) for name in names)
    return spec if fits else None


def with_files(cause: "FirstCause | None", folder: Path) -> "FirstCause | None":
    """Return a first cause with the files of the attempt folder that it is about: stacks with whole
    paths, and the copy of the code, if the traceback names files of the run's code."""
    if cause is None:
        return None
    stacks = tuple(replace(stack, file=str(folder / stack.file)) for stack in cause.stacks)
    return replace(cause, stacks=stacks, code=_code(folder, cause.traceback or ""))


def _code(folder: Path, trace: str) -> "CodeCopy | None":
    files = set(re.findall(_FRAME, trace))
    if not files:
        return None
    spec = read_spec(folder)
    if spec is None:
        return None
    root, copy = spec["code_root"], Path(spec["code_dir"])
    ours = sorted(name for name in files if root and name.startswith(f"{root}/"))
    if not ours or not copy.is_dir():
        return None
    changed = [name for name in ours if _differ(name, copy / os.path.relpath(name, root))]
    from sgpu_decl.model.attempt_details import CodeCopy

    return CodeCopy(copy=str(copy), changed=tuple(changed))


def _differ(file: str, copy: Path) -> bool:
    try:
        launched = copy.read_bytes()
    except OSError:
        return False  # the run removed its copy
    try:
        with open(file, "rb", opener=regular_opener) as now:
            return now.read() != launched
    except OSError:
        return True
