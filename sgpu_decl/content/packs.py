"""The format of packs of objects, and of the index that lists the packs of an environment.

A pack is gzip of `sgpu-pack 1`, a line with its contents as JSON, and their bytes in that order. It
holds no paths, which could lead out of a folder. A pack is named by its contents and an index by
its manifest, so a file of that name need not be sent again.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import NamedTuple

from sgpu_decl.content.manifest import FileKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from sgpu_decl.content.manifest import Manifest

FORMAT = 1
MAGIC = b"sgpu-pack 1\n"
MOST = 64 << 20  # bytes of content in a pack of several objects
_KEY = re.compile(r"[0-9a-f]{64}(\.x)?")


class BadPack(ValueError):
    """A pack or an index is missing, cut off, or has wrong content. `damaged` are the files that
    are there and must not be."""

    def __init__(self, message: str, *damaged: str) -> None:
        super().__init__(message)
        self.damaged = damaged


class Pack(NamedTuple):
    """`contents` are the names and sizes of objects, in their order."""

    contents: tuple[tuple[str, int], ...]

    @property
    def head(self) -> bytes:
        """The first bytes of a pack, before compression."""
        return MAGIC + json.dumps(self.contents, separators=(",", ":")).encode("ascii") + b"\n"

    @property
    def name(self) -> str:
        """The name of its file."""
        return hashlib.sha256(self.head).hexdigest() + ".pack"

    @property
    def size(self) -> int:
        """Bytes of content."""
        return sum(size for _, size in self.contents)


class Index(NamedTuple):
    """The packs that hold all objects of the manifest with this digest, and maybe more."""

    manifest: str
    packs: tuple[Pack, ...]

    def to_bytes(self) -> bytes:
        """Canonical JSON, ASCII."""
        packs = [pack.contents for pack in self.packs]
        value = {"v": FORMAT, "manifest": self.manifest, "packs": packs}
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")

    @property
    def files(self) -> list[str]:
        """The names of all files that an environment is sent as, itself last."""
        names = [pack.name for pack in self.packs]
        return [*names, manifest_name(self.manifest), index_name(self.manifest)]

    @classmethod
    def from_bytes(cls, data: bytes, manifest: Manifest) -> Index:
        """Read an index, and check that it has the objects of a manifest and few others.

        Raises:
            BadPack: it is not such an index.
        """
        index = cls.unchecked(data, manifest.digest)
        _check(index.packs, needed(manifest))
        return index

    @classmethod
    def unchecked(cls, data: bytes, manifest: str) -> Index:
        """Read the index of the manifest with this digest, for the names of files alone. Raises
        BadPack: it is none."""
        try:
            raw = json.loads(data)
            version, digest = raw["v"], str(raw["manifest"])
            packs = tuple(
                Pack(tuple((str(key), int(size)) for key, size in contents))
                for contents in raw["packs"]
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadPack(f"not an index of packs: {error}") from None
        if version != FORMAT:
            raise BadPack(f"an index of another format: {version!r}")
        if digest != manifest:
            raise BadPack("the index belongs to another manifest")
        return cls(digest, packs)


def index_name(digest: str) -> str:
    """The name of an index's file, by the digest of the manifest or its hex."""
    return digest.removeprefix("sha256:") + ".packs"


def manifest_name(digest: str) -> str:
    """The name of a manifest's file beside its packs."""
    return digest.removeprefix("sha256:") + ".manifest"


def needed(manifest: Manifest) -> dict[str, int]:
    """Names and sizes of the objects of a manifest, bytecode included, in the order of paths."""
    entries = sorted((*manifest.files, *manifest.bytecode))
    return {file.key: file.size for file in entries if file.kind != FileKind.LINK}


def _check(packs: Iterable[Pack], objects: dict[str, int]) -> None:
    keys: set[str] = set()
    for pack in packs:
        useful = 0
        for key, size in pack.contents:
            if not _KEY.fullmatch(key) or size < 0:
                raise BadPack(f"{key!r} is not the name of an object")
            if key in keys:
                raise BadPack(f"{key} occurs twice")
            keys.add(key)
            if objects.get(key, size) != size:
                raise BadPack(f"{key} has another size than in the manifest")
            useful += size if key in objects else 0
        if pack.size > MOST and len(pack.contents) > 1:
            raise BadPack(f"the pack {pack.name} holds more than {MOST:,} bytes")
        if pack.size > 2 * useful:
            raise BadPack(f"more than half of the pack {pack.name} is not in the manifest")
    missing = [key for key in objects if key not in keys]
    if missing:
        raise BadPack(f"the index lacks {len(missing)} objects, such as {missing[0]}")
