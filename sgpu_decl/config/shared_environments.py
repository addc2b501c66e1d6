"""`env: {use: NAME}`: a run uses an environment that its project declares under `environments`."""

from dataclasses import replace

from sgpu_decl.config.env import Env, EnvironmentBlock
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.text.core_schema import is_null
from sgpu_decl.text.overrides import in_full
from sgpu_decl.text.shape import Shape
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, place_of

_FIELDS = tuple(EnvironmentBlock.model_fields)
_SHORT = Shape(short=Env.short)


def with_shared_environment(
    run: Mapping, environments: Mapping | None
) -> tuple[Mapping, tuple[Diagnostic, ...]]:
    """Copy the fields of the environment that a run uses into its own `env`, with their places.

    Args:
        environments: the block of the project; `None` in a run file, which has none.

    Returns:
        The run, unchanged if it uses none, and the findings.
    """
    env, use = _env_and_use(run)
    if use is None:
        return run, ()
    blocks = environments.entries if environments is not None else {}
    shared = blocks.get(use.text)
    if not isinstance(shared, Mapping):
        return run, (_unknown(use, blocks, project=environments is not None),)
    both = [name for name in _FIELDS if name in env.entries]
    if both:
        return run, tuple(_twice(name, use, env) for name in both)
    merged = replace(
        env, entries={**env.entries, **shared.entries}, keys={**env.keys, **shared.keys}
    )
    return replace(run, entries={**run.entries, "env": merged}), ()


def _env_and_use(run: Mapping) -> tuple[Mapping, Scalar | None]:
    """The `env` block and the name in it."""
    env = run.entries.get("env")
    env = env and in_full(env, _SHORT)
    if not isinstance(env, Mapping):
        return run, None
    use = env.entries.get("use")
    if not isinstance(use, Scalar) or not use.text or (use.plain and is_null(use.text)):
        return env, None
    return env, use


def _unknown(use: Scalar, blocks: dict[str, Node], *, project: bool) -> Diagnostic:
    near = nearest(use.text, blocks)
    if near is not None:
        hint = f"did you mean `{near}`?"
    elif blocks:
        hint = "known: " + ", ".join(f"`{name}`" for name in blocks)
    elif project:
        hint = f"declare it: `environments: {{{use.text}: {{snapshot: true}}}}`"
    else:
        hint = "a run file declares its environment itself: `env: {snapshot: true}`"
    return Diagnostic(
        code="unknown_environment",
        summary=f"`env.use` names no environment: `{use.text[:80]}`",
        place=place_of(use),
        hint=hint,
    )


def _twice(name: str, use: Scalar, env: Mapping) -> Diagnostic:
    return Diagnostic(
        code="two_environments",
        summary=f"`env.use` is a whole environment, and `env.{name}` asks for another",
        place=env.keys[name],
        hint=f"move `{name}` to `environments.{use.text}`, or remove `use`; a target with another "
        "environment sets `use: null`",
        related=(Related(place=place_of(use), note="it is used here"),),
    )
