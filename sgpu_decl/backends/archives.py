"""Rooms of this package as zips, for machines and environments that have no sgpu."""

import hashlib
import io
import marshal
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import ModuleType

import sgpu_decl.agent
import sgpu_decl.content
import sgpu_decl.rank
import sgpu_decl.tracking

_OLDEST = (1980, 1, 1, 0, 0, 0)  # what a zip can say
_UNCHECKED = (1).to_bytes(4, "little")  # PEP 552: a pyc that goes by a hash, which nobody checks


@cache
def agent_zip(room: ModuleType | None = None) -> tuple[str, bytes]:
    """Return the archive that is the node agent, `python agent.zip …`, and its SHA-256 in hex.

    The same sources give the same bytes. The modules of `content/` lie in a folder of it.

    Args:
        room: what a backend adds to it: its modules are imported there by the names that they have
            here. Of the packages above it there is `__init__.py`.
    """
    own = _room_modules(room) if room is not None else {}
    data = _packed({**_agent_modules(), **own}, zipfile.ZIP_DEFLATED)
    return hashlib.sha256(data).hexdigest(), data


@cache
def agent_sources_digest() -> str:
    """Return a SHA-256 in hex that changes with the sources in `agent_zip`, which takes three times
    as long to make."""
    hashed = hashlib.sha256()
    for name, path in sorted(_agent_modules().items()):
        data = path.read_bytes()
        hashed.update(f"{name} {len(data)}\n".encode() + data)
    return hashed.hexdigest()


def _agent_modules() -> dict[str, Path]:
    content = {f"content/{name}": file for name, file in _modules(sgpu_decl.content).items()}
    on_nodes = {name: file for name, file in content.items() if name.count("/") == 1}
    return {**_modules(sgpu_decl.agent), **on_nodes}


def _room_modules(room: ModuleType) -> dict[str, Path]:
    (top,), (folder,) = map(Path, sgpu_decl.__path__), map(Path, room.__path__)
    above = [parent / "__init__.py" for parent in folder.parents if top in parent.parents]
    return {path.relative_to(top).as_posix(): path for path in [*above, *folder.rglob("*.py")]}


@cache
def tracker_zip() -> bytes:
    """Return the archive that is the tracker on a node, beside that of the agent."""
    return _packed(_modules(sgpu_decl.tracking), zipfile.ZIP_DEFLATED)


@cache
def rank_zip(*, compiled: bool) -> bytes:
    """Return the archive that `_air.py` imports from, `rank.zip`.

    Args:
        compiled: whether it holds bytecode, for ranks of the interpreter that runs this, in place
            of the sources, which give the same bytes everywhere.
    """
    return _packed(_modules(sgpu_decl.rank), zipfile.ZIP_STORED, compiled=compiled)


def _modules(room: ModuleType) -> dict[str, Path]:
    """The files of a room, by their paths in it."""
    (root,) = map(Path, room.__path__)
    return {file.relative_to(root).as_posix(): file for file in root.rglob("*.py")}


def _packed(files: Mapping[str, Path], compression: int, *, compiled: bool = False) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, path in sorted(files.items(), key=lambda item: item[0].split("/")):
            data = path.read_bytes()
            if compiled:
                data, name = _bytecode(data, f"sgpu_decl/rank/{name}"), f"{name}c"
            entry = zipfile.ZipInfo(name, _OLDEST)
            entry.compress_type = compression
            entry.create_system = 3  # Unix, wherever it is made
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return packed.getvalue()


def _bytecode(source: bytes, name: str) -> bytes:
    code = compile(source, name, "exec", dont_inherit=True, optimize=2)  # no docstrings
    return MAGIC_NUMBER + _UNCHECKED + bytes(8) + marshal.dumps(code)
