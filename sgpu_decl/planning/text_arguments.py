"""Which arguments of entrypoints are text, as their source says."""

from collections.abc import Mapping
from pathlib import Path

from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.text.shape import Shape
from sgpu_decl.text.yaml_nodes import resolve


class EntrypointTexts:
    """The roots of code start from `folder`, that of the run or project file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers: dict[tuple[str, str], Mapping[str, Shape]] = {}

    def __call__(self, entrypoint: str, root: str) -> Mapping[str, Shape]:
        key = (entrypoint, root)
        if key not in self._answers:
            from sgpu_decl.code.signatures import text_arguments  # with `ast`

            self._answers[key] = text_arguments((self._folder / root).resolve(), entrypoint)
        return self._answers[key]


def as_recorded(spec: Spec, recorded: Spec, texts: Mapping[str, Shape]) -> Spec:
    """A spec with the recorded values of arguments that are text now, where they are what the text
    looks like: earlier versions gave functions numbers where they want text."""
    args, old = spec.fields.get("args"), recorded.fields.get("args")
    if not (isinstance(args, dict) and isinstance(old, dict)):
        return spec
    same = {
        name: old[name]
        for name, shape in texts.items()
        if name in args and name in old and _looks_like(args[name], old[name], shape)
    }
    return Spec.of({**spec.fields, "args": {**args, **same}})


def _looks_like(new: Json, old: Json, shape: Shape | None) -> bool:
    if shape is None or new == old:
        return new == old
    if shape.text:
        looks = resolve(new) if isinstance(new, str) else None
        return looks is not None and looks == old and type(looks) is type(old)
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        pairs = zip(new, old, strict=True)
        return all(_looks_like(one, other, shape.items) for one, other in pairs)
    if isinstance(new, dict) and isinstance(old, dict) and new.keys() == old.keys():
        return all(_looks_like(new[key], old[key], shape.values) for key in new)
    return False
