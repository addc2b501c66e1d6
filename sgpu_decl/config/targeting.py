"""The overrides of a target, laid over the root of a file."""

from sgpu_decl.config.sharing import unknown_keys
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.diagnostics.suggesting import nearest
from sgpu_decl.model.target import misnamed
from sgpu_decl.text import nodes
from sgpu_decl.text.merging import merge
from sgpu_decl.text.shape import Shape

__all__ = ["with_target"]


def with_target(
    root: nodes.Mapping, target: str | None, shape: Shape
) -> tuple[nodes.Mapping, tuple[Diagnostic, ...]]:
    """Lay the chosen target over the root; the names in the other targets are checked alone."""
    root, block = nodes.without(root, "targets")
    targets, keys = (block.entries, block.keys) if isinstance(block, nodes.Mapping) else ({}, {})
    found: list[Diagnostic] = []
    if block is not None and not isinstance(block, nodes.Mapping):
        found.append(_wrong("wrong_type", "`targets` must be a mapping", nodes.place_of(block),
                            "write `targets: {dev: {…}}`"))  # fmt: skip
    for name, over in targets.items():
        if hint := misnamed(name):
            found.append(_wrong("bad_name", f"`{name}` is no name of a target",
                                keys[name], hint))  # fmt: skip
        if not isinstance(over, nodes.Mapping):
            if isinstance(over, nodes.Scalar) and over.plain and not over.text:
                continue
            found.append(_wrong("wrong_type", f"`targets.{name}` must be a mapping",
                                nodes.place_of(over), "list the fields that differ"))  # fmt: skip
        elif "targets" in over.entries:
            found.append(_wrong("unknown_key", f"a target cannot hold targets (`{name}`)",
                                over.keys["targets"], "write them side by side"))  # fmt: skip
        elif name == target:
            merged = merge(root, over, shape)
            root = merged if isinstance(merged, nodes.Mapping) else root
        else:
            found += unknown_keys(nodes.without(over, "variables")[0], shape, f"targets.{name}")
    if target is not None and target not in targets:
        near = nearest(target, targets)
        known = ", ".join(f"`{name}`" for name in targets)
        place = nodes.place_of(root if block is None else block)
        hint = f"known: {known}" if known else "declare it under `targets`"
        hint = f"did you mean `{near}`?" if near else hint
        found.append(_wrong("unknown_target", f"there is no target `{target}`", place, hint))
    return root, tuple(found)


def _wrong(code: str, summary: str, place: Place, hint: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, place=place, hint=hint)
