"""Where the fields of a plan come from, as text and as JSON."""

from collections.abc import Iterator, Mapping

from sgpu_decl.model.address import Address
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import FieldOrigin, OriginRole, Plan
from sgpu_decl.views.plan_words import path_words, value
from sgpu_decl.views.terminal import escape

Origins = Mapping[tuple[Address, str], tuple[FieldOrigin, ...]]

_WORDS = {
    OriginRole.VALUE: "",
    OriginRole.FILLED: "from ",
    OriginRole.REFERENCE: "through ",
    OriginRole.REPLACED: "over ",
}
_WIDEST = 60


def blame_text(plan: Plan, origins: Origins) -> str:
    """One line for each field: `args.lr = 0.1   --set args.lr   over sgpu.yml:7:12`."""
    return "".join(f"{line}\n" for line in _lines(plan, origins))


def _lines(plan: Plan, origins: Origins) -> Iterator[str]:
    for change in plan.changes:
        known = [field for field in change.fields if (change.address, field.path) in origins]
        if known:
            yield f"{escape(str(change.address))}:"
        for field in known:
            shown = value(field.after, field.path)
            shown = shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 1]}…"
            chain = "   ".join(map(_words, origins[change.address, field.path]))
            yield f"  {path_words(field.path)} = {shown}   {chain}"


def _words(origin: FieldOrigin) -> str:
    layer = f" ({origin.layer})" if origin.layer else ""
    return escape(f"{_WORDS[origin.role]}{origin.place}{layer}")


def _place_json(origin: FieldOrigin) -> dict[str, Json]:
    place = origin.place
    if place.is_option:
        return {"option": str(place), "file": None, "line": None, "column": None}
    return {"option": None, **place.to_json()}


def with_origins(data: dict[str, Json], plan: Plan, origins: Origins) -> dict[str, Json]:
    """The JSON of a plan, with `origins` in each field."""
    changes = data["changes"]
    assert isinstance(changes, list)  # noqa: S101  see plan_json
    for change, shown in zip(plan.changes, changes, strict=True):
        assert isinstance(shown, dict) and isinstance(shown["fields"], list)  # noqa: S101, PT018
        for field, item in zip(change.fields, shown["fields"], strict=True):
            assert isinstance(item, dict)  # noqa: S101
            item["origins"] = [
                {**_place_json(origin), "role": str(origin.role), "layer": origin.layer}
                for origin in origins.get((change.address, field.path), ())
            ]
    return data
