"""Cells of a matrix whose values stand in a few fields: all else is read and written once."""

from collections.abc import Mapping
from typing import Any

from sgpu_decl.config.run import NOT_IN_SPEC, RunConfig
from sgpu_decl.model.jsonable import Json, canonical

__all__ = ["Common", "dumped"]


class Common:
    """What the cells of one matrix share.

    Args:
        first: the first of them, validated whole.
        varying: the fields that a value of the matrix stands in.
    """

    def __init__(self, first: RunConfig, varying: frozenset[str]) -> None:
        self._varying = set(varying - NOT_IN_SPEC)
        self._fixed = {
            field: getattr(first, field)
            for field in first.model_fields_set
            if field not in varying and field != "matrix"
        }
        shared = {key: value for key, value in dumped(first).items() if key not in varying}
        self._texts = _texts(shared)

    def cell(self, values: Mapping[str, Any]) -> tuple[RunConfig, str]:
        """Return another cell and its spec.

        Args:
            values: the plain values of its varying fields.

        Raises:
            ValidationError: they do not fit, alone or beside the shared ones.
            ValueError: an argument is not a finite number.
        """
        config = RunConfig.model_validate({**self._fixed, **values})
        own = config.model_dump(mode="json", exclude_defaults=True, include=self._varying)
        texts = {**self._texts, **_texts(own)}
        return config, "{" + ",".join(texts[key] for key in sorted(texts)) + "}"


def dumped(config: RunConfig) -> dict[str, Any]:
    """A run as a spec has it: no defaults, no name, no matrix."""
    return config.model_dump(mode="json", exclude_defaults=True, exclude=set(NOT_IN_SPEC))


def _texts(values: Mapping[str, Json]) -> dict[str, str]:
    """Each member of a canonical object by its key."""
    return {key: f"{canonical(key)}:{canonical(value)}" for key, value in values.items()}
