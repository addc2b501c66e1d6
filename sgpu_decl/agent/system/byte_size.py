"""Numbers of bytes in words."""

from __future__ import annotations


def size(number: int) -> str:
    """Return a number of bytes in decimal units: `512 B`, `34.5 kB`, `1.2 GB`."""
    if number < 1000:
        return f"{number} B"
    amount = float(number)
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 999.95 or unit == "TB":
            break
    return f"{amount:,.1f} {unit}"
