"""Environments on their way to workers: packs of what is not there yet, and then their index.

Objects are cut into packs by their own names, in the order of paths: a package that changes changes
the packs around it and no other. Packs that were sent before are used again where at least half of
what they hold is needed.
"""

import hashlib
import os
import threading
import zlib
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from sgpu_decl.agent.manifest import Manifest
from sgpu_decl.agent.packs import MOST, Index, Pack, index_name, needed
from sgpu_decl.errors import SgpuError

__all__ = ["FolderPlace", "Place", "make_index", "send", "write_pack"]

_THREADS = 2
_CHUNK = 1 << 20
_LEVEL = 1  # the next one costs half as much time again, and saves a tenth
_GZIP = 31


class Place(Protocol):
    """Where packs go. A file is there whole, or it is not there."""

    def has(self, names: Collection[str]) -> set[str]:
        """Those of the files that are there."""

    def put(self, name: str, file: Path) -> None:
        """Bring a file there; one that is there already may stay."""

    def get(self, name: str, file: Path) -> None:
        """Fetch a file to a path.

        Raises:
            FileNotFoundError: it is not there.
        """
