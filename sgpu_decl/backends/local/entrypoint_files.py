"""The files in an attempt folder that ranks start from: `_air.py`, `rank.zip` and the spec."""

import contextlib
import hashlib
import marshal
import os
import sys
import warnings
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.backends.archives import rank_zip
from sgpu_decl.rendering.spec import LaunchSpec, render_spec
from sgpu_decl.rendering.templates import render_air


def write_entrypoint(folder: Path, spec: LaunchSpec, shared: Path) -> None:
    """Write `_air.py` and what it imports, and at last `spec.json`.

    Args:
        shared: a folder on the same file system, for the archive that attempts have in common.

    Raises:
        OSError: the disk is full, or the folder is gone.
    """
    raw = render_spec(spec)
    if spec.runs_python:
        ours = os.path.realpath(spec.python) == os.path.realpath(sys.executable)
        _place_archive(folder / "rank.zip", shared, compiled=ours)
        if ours and spec.entry.kind == "script":
            _compile_script(folder / "code", str(spec.entry.path), run_as=Path(spec.code_dir))
    air = render_air(hashlib.sha256(raw).hexdigest(), spec.entry)
    write_atomic(folder / "_air.py", air.encode())
    write_atomic(folder / "spec.json", raw)


def _place_archive(path: Path, shared: Path, *, compiled: bool) -> None:
    """Link the archive of this version and interpreter; the first attempt writes it."""
    version = hashlib.sha256(rank_zip(compiled=False) + MAGIC_NUMBER).hexdigest()
    key = f"rank-{version}-{'bytecode' if compiled else 'sources'}.zip"
    try:
        os.link(shared / key, path)
    except OSError:  # there is none yet, no room for another link, or no links at all
        write_atomic(path, rank_zip(compiled=compiled))
        shared.mkdir(mode=0o700, exist_ok=True)
        for other in shared.glob("rank-*.zip"):
            if version not in other.name:  # attempts of that version have links of their own
                other.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another attempt was first, or there are no links
            os.link(path, shared / key)


def _compile_script(code: Path, script: str, *, run_as: Path) -> None:
    """Write the bytecode of a script where Python looks for that of a module, so that not every
    rank compiles it. A script outside of the code, or one with a warning or an error, is left to
    ranks.

    Args:
        run_as: where the code will lie when it runs; tracebacks name that.
    """
    if not (run_as / script).is_relative_to(run_as):
        return
    path = code / script
    try:
        source, facts = path.read_bytes(), path.stat()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled = compile(source, run_as / script, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError, Warning, RecursionError, MemoryError):
        return
    folder = path.parent / "__pycache__"
    folder.mkdir(mode=0o700, exist_ok=True)
    # PEP 552: a pyc that goes by the time and the size of its source.
    facts_of_source = (0, int(facts.st_mtime), facts.st_size)
    header = MAGIC_NUMBER + b"".join(
        (number & 0xFFFFFFFF).to_bytes(4, "little") for number in facts_of_source
    )
    name = f"{path.stem}.{sys.implementation.cache_tag}.pyc"
    write_atomic(folder / name, header + marshal.dumps(compiled))
