"""The program that makes the tree of an environment: a backend runs it where ranks will run.

    python agent.zip hydrate --manifest M --objects DIR --tree DIR --python PYTHON
                             [--digest SHA256] [--packs DIR]

It prints its progress as lines of JSON, and the result last:

    {"phase": "linking", "done": 4096, "total": 81920}
    {"tree": "/path"}
    {"error": "damaged", "message": "…", "objects": ["ab12…"]}
    {"error": "packs", "message": "…", "damaged": ["/path"]}

The errors are `damaged`, `mismatch`, `manifest`, `packs` and `system`; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time

from sgpu_decl.content.hydration import DamagedObjects, InterpreterMismatch, hydrate
from sgpu_decl.content.manifest import BadManifest, Manifest
from sgpu_decl.content.pack_reader import unpack
from sgpu_decl.content.packs import BadPack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_OFTEN = 0.1  # seconds between two lines of progress


def main(arguments: Sequence[str]) -> int:
    """Make the tree; return the exit code."""
    gc.disable()  # a manifest is many small values, which are used until the end
    options = _parser().parse_args(arguments[1:])
    try:
        manifest = _manifest(options.manifest, options.digest)
        progress = _Progress()
        if options.packs is not None:
            unpack(
                manifest,
                options.packs,
                options.objects,
                options.python,
                advance=progress.advance,
            )
        hydrate(
            manifest,
            options.objects,
            options.tree,
            options.python,
            advance=progress.advance,
        )
    except DamagedObjects as error:
        return _failed("damaged", error, objects=error.objects)
    except InterpreterMismatch as error:
        return _failed("mismatch", error)
    except BadManifest as error:
        return _failed("manifest", error, damaged=[os.path.abspath(options.manifest)])
    except BadPack as error:
        return _failed("packs", error, damaged=error.damaged)
    except OSError as error:
        return _failed("system", error, errno=error.errno)
    _say({"tree": os.path.abspath(options.tree)})
    return 0


def _manifest(path: str, digest: str | None) -> Manifest:
    try:
        with open(path, "rb") as file:
            return Manifest.from_bytes(file.read(), digest)
    except FileNotFoundError:
        why = f"there is no manifest `{path}`: the transfer was not completed"
        raise BadManifest(why) from None
    except BadManifest as error:
        raise BadManifest(f"the manifest `{path}` is refused: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agent hydrate", description="Make a tree.")
    parser.add_argument("--manifest", required=True, metavar="FILE")
    parser.add_argument("--digest", metavar="SHA256", help="the digest of the manifest")
    parser.add_argument("--objects", required=True, metavar="DIR")
    parser.add_argument("--packs", metavar="DIR", help="packs of the objects, and their index")
    parser.add_argument("--tree", required=True, metavar="DIR")
    parser.add_argument(
        "--python", required=True, metavar="FILE", help="the interpreter of the ranks"
    )
    return parser


class _Progress:
    """Prints at most ten lines a second, and the last line of each phase."""

    def __init__(self) -> None:
        self._last_line_time = 0.0

    def advance(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done == total or now - self._last_line_time >= _OFTEN:
            self._last_line_time = now
            _say({"phase": phase, "done": done, "total": total})


def _failed(kind: str, error: Exception, **more: object) -> int:
    _say({"error": kind, "message": str(error), **more})
    return 1


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
