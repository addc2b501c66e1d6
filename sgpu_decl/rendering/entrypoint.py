"""`_air.py`, the entrypoint of a rank, `_call.py`, which makes a call in it, and `_warm.py`, which
forks ranks: from their templates."""

from enum import StrEnum

from sgpu_decl.agent.errorfile import COLLATERAL
from sgpu_decl.rendering.pools import HARMLESS
from sgpu_decl.rendering.templates import render

__all__ = ["AirStyle", "render_air", "render_call", "render_warm"]


class AirStyle(StrEnum):
    """How the ranks come to be: spawned by the node agent, on this machine or on nodes of a
    platform."""

    LOCAL = "local"
    NODES = "nodes"


def render_air(spec_sha256: str, style: AirStyle | str = AirStyle.LOCAL) -> str:
    """Return the Python source of `_air.py` for the spec with that SHA-256 (64 hex digits).

    The same arguments give the same bytes. No text of the user's goes into it.

    Raises:
        ValueError: the checksum or the style is not one.
    """
    if len(spec_sha256) != 64 or not set(spec_sha256) <= set("0123456789abcdef"):
        raise ValueError(f"not a SHA-256 in hex: {spec_sha256!r}")
    return render(
        "entrypoints",
        "_air.py.j2",
        spec_sha256=spec_sha256,
        style=AirStyle(style).value,
        collateral=sorted(COLLATERAL),
    )


def render_call() -> str:
    """Return the Python source of `_call.py`; it is the same for every call."""
    return render("entrypoints", "_call.py.j2")


def render_warm() -> str:
    """Return the Python source of `_warm.py`; it is the same for every run."""
    return render(
        "entrypoints",
        "_warm.py.j2",
        threads=sorted(pool.thread for pool in HARMLESS if pool.thread is not None),
        libraries=sorted(pool.library for pool in HARMLESS if pool.library is not None),
    )
