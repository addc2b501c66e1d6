"""What ranks begin with, in the folder of their attempt: the entrypoints and the spec."""

import hashlib
import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from sgpu_decl.rendering.entrypoint import render_air, render_call, render_warm
from sgpu_decl.rendering.spec import LaunchSpec, render_spec

__all__ = ["forget_compiled", "write_entrypoints"]

_PARTS = ("_air", "_call", "_warm")


def write_entrypoints(folder: Path, spec: LaunchSpec) -> None:
    """Write `_air.py`, `_call.py` for a call, `_warm.py` where ranks are to fork, and at last
    `spec.json`.

    For ranks of our own interpreter, in whatever environment, they lie there compiled too, which
    each rank would spend 4 ms on and more. Those files alone are not synced: see `forget_compiled`.

    Raises:
        OSError: the disk is full, or the folder is gone.
    """
    raw = render_spec(spec)
    sources = {"_air": render_air(hashlib.sha256(raw).hexdigest())}
    if spec.entry.call is not None:
        sources["_call"] = render_call()
    if spec.warm is not None and spec.warm.refused is None:
        sources["_warm"] = render_warm()
    for name, source in sources.items():
        path = folder / f"{name}.py"
        _write(path, source.encode())
        if os.path.realpath(spec.python) == os.path.realpath(sys.executable):
            code = compile(source, path, "exec", dont_inherit=True)
            # Magic, then 12 bytes (flags, time and size of the source) that nobody looks at in a
            # file that is run by its name.
            compiled = path.with_suffix(".pyc")
            compiled.touch(mode=0o600)
            compiled.write_bytes(MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
    _write(folder / "spec.json", raw)


def forget_compiled(folder: Path) -> None:
    """Do without the compiled entrypoints: a power cut may have torn them."""
    for name in _PARTS:
        (folder / f"{name}.pyc").unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
