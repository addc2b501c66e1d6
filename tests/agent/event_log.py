"""Reads `events.log`: of an attempt, the lines that are whole."""

import json
from pathlib import Path
from typing import Any
from zlib import crc32

__all__ = ["read_events"]


def read_events(folder: Path) -> list[dict[str, Any]]:
    """Return the events; a line whose checksum does not fit is left out."""
    path = folder / "events.log"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    parts = [line.split(b" ", 1) for line in lines if line]
    return [json.loads(body) for crc, body in parts if crc == b"%08x" % crc32(body)]
