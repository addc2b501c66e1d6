"""Brings the differences between two installations of the same packages to one form.

Standard library alone: workers run it.
"""

import _imp
import re
import struct

_PYTHON = rb"[^\n]*?\bpythonw?[0-9.]*['\"]?(?:[ \t][^\n]*)?\r?\n"
_SHEBANG = re.compile(rb"#!" + _PYTHON)
# Written by pip and distlib where the path of the interpreter is too long for the kernel.
_LONG_SHEBANG = re.compile(rb"#!/bin/sh\n'''exec' " + _PYTHON + rb"' '''\n")
_INSTALLED = re.compile(r"(?:^|/)(?:INSTALLER|REQUESTED|direct_url\.json|uv_\w+\.json)$")

UNCHECKED, CHECKED = 1, 3  # flags of hash-based bytecode (PEP 552)


def is_script(head: bytes) -> bool:
    """Whether a file begins as Python scripts do."""
    return bool(_SHEBANG.match(head) or _LONG_SHEBANG.match(head))


def script(data: bytes) -> bytes:
    """Replace the first line by `#!python`, as in wheels; a tree puts its interpreter there."""
    shebang = _LONG_SHEBANG.match(data) or _SHEBANG.match(data)
    return b"#!python\n" + data[shebang.end() :] if shebang else data


def record(data: bytes) -> bytes:
    """Reduce a RECORD to the lines that are the same for each installation: without bytecode,
    installers' notes, absolute paths, and digests of scripts; sorted."""
    lines = []
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        path, digest, _ = line.rsplit(",", 2) if line.count(",") >= 2 else (line, "", "")
        plain = path.strip('"')
        if not line or plain.endswith(".pyc") or plain.startswith("/") or _INSTALLED.search(plain):
            continue
        lines.append(f"{path},," if digest and "/bin/" in plain and plain[:2] == ".." else line)
    return "".join(f"{line}\n" for line in sorted(lines)).encode("utf-8", "surrogateescape")


def bytecode(
    data: bytes, magic: bytes, source: bytes, source_stamp: "tuple[int, int] | None"
) -> "bytes | None":
    """Turn a pyc file into the unchecked hash-based one of its source.

    Args:
        magic: the first bytes of the interpreter's pyc files.
        source_stamp: size and modification time (s) of the source; `None` skips the check.

    Returns:
        The new content; `None` if it is not the bytecode of that source.
    """
    key = _imp.source_hash(int.from_bytes(magic, "little"), source)
    if source_stamp is not None:
        if len(data) <= 16 or data[:4] != magic:
            return None
        flags = struct.unpack_from("<I", data, 4)[0]
        if flags in (UNCHECKED, CHECKED):
            fits = data[8:16] == key
        else:
            size, mtime = source_stamp
            stamp = struct.pack("<II", mtime & 0xFFFFFFFF, size & 0xFFFFFFFF)
            fits = flags == 0 and data[8:16] == stamp
        if not fits:
            return None
    return magic + struct.pack("<I", UNCHECKED) + key + data[16:]
