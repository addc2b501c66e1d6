"""JSON values, their one canonical text, and the specs that are such texts.

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


class Spec:
    """A validated config without defaults. Two are equal if their canonical JSON is.

    `text` is that JSON: hashed and stored. `fields` are its values, which are read once, when
    somebody asks; nobody changes them.
    """

    __slots__ = ("_fields", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._fields: Mapping[str, Json] | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Json]) -> "Spec":
        return cls(canonical(fields))

    @property
    def fields(self) -> Mapping[str, Json]:
        if self._fields is None:
            self._fields = json.loads(self.text)
            assert self._fields is not None  # noqa: S101  it is an object
        return self._fields

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Spec) and self.text == other.text)

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Spec({self.text!r})"


NO_FIELDS = Spec("{}")
