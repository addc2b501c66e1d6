"""JSON values and their one canonical text.

Values that are compared, hashed or stored for a run travel as canonical JSON text: it is immutable,
hashable and small, and two equal values have equal text.
"""

import json
from collections.abc import Mapping, Sequence

LARGEST_NUMBER = 2**53
"""Readers of JSON agree on whole numbers below it (RFC 8259, section 6)."""

# Made once: `json.dumps` would make one for every value.
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def canonical(value: Json) -> str:
    """Return the canonical text of a JSON value: keys sorted, no spaces, text unescaped.

    Raises:
        ValueError: the value holds NaN or an infinity, which JSON cannot.
    """
    return _ENCODER.encode(value)


def digest(text: str) -> str:
    """Return the SHA-256 of a text as `sha256:<hex>`."""
    import hashlib  # with OpenSSL, which takes 2 ms

    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def check_name(text: str) -> None:
    """Check that files, addresses or tokens can be called so.

    Raises:
        ValueError: it has a NUL, or half of a pair of surrogates.
    """
    if "\0" in text:
        raise ValueError(f"`{text[:40]!r}` has a NUL")
    text.encode("utf-8", "surrogateescape")
