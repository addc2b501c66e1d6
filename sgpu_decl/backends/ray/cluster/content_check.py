"""Which content of the head is damaged: asked after nodes have refused some, which they got from
there."""

from __future__ import annotations

import gzip
import os
import tarfile
import tempfile
import zlib

from sgpu_decl.content.code_tree import BadCode, archive_name, extract_code
from sgpu_decl.content.manifest import BadManifest, Manifest
from sgpu_decl.content.pack_reader import read_pack
from sgpu_decl.content.packs import BadPack, Index, index_name, manifest_name

_DAMAGED = (
    BadCode, BadManifest, BadPack, FileNotFoundError,
    EOFError, gzip.BadGzipFile, tarfile.TarError, zlib.error, ValueError, OverflowError,
)  # fmt: skip


def damaged_content(objects: str, code: str | None, environment: str | None) -> list[str]:
    """Return the paths of the files that are missing or are not what they should be. Raises OSError
    where that cannot be told, since this machine has no room.

    Args:
        objects: the folder of content.
        code, environment: the digests in hex of what a run has of them.
    """
    damaged = []
    if code is not None:
        archive = os.path.join(objects, "code", archive_name(code))
        with tempfile.TemporaryDirectory() as scratch:
            try:
                extract_code(archive, os.path.join(scratch, "code"), code)
            except _DAMAGED:
                damaged.append(archive)
    if environment is not None:
        damaged += _damaged_packs(os.path.join(objects, "packs"), environment)
    return damaged


def _damaged_packs(packs: str, environment: str) -> list[str]:
    path = os.path.join(packs, manifest_name(environment))
    try:
        manifest = Manifest.from_bytes(_read(path), f"sha256:{environment}")
        path = os.path.join(packs, index_name(manifest.digest))
        index = Index.from_bytes(_read(path), manifest)
    except _DAMAGED:
        return [path]
    damaged = []
    for pack in index.packs:
        path = os.path.join(packs, pack.name)
        with tempfile.TemporaryDirectory() as scratch:
            try:
                with open(path, "rb") as file:
                    read_pack(file, pack, {key for key, _ in pack.contents}, scratch)
            except _DAMAGED:
                damaged.append(path)
    return damaged


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
