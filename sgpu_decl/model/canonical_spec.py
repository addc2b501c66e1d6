"""The config of a run, a job or an environment: what is compared, recorded and launched."""

import json
from collections.abc import Mapping

from sgpu_decl.model.jsonable import Json, canonical


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
