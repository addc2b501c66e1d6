"""`env: {use: NAME}`: a run takes an environment that its project declares under `environments`."""

from dataclasses import replace

from sgpu_decl.config.env import Env, EnvironmentBlock
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.text.core_schema import is_null
from sgpu_decl.text.overrides import in_full
from sgpu_decl.text.shape import Shape
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, place_of

__all__ = ["with_shared_environment"]

_FIELDS = tuple(EnvironmentBlock.model_fields)
_SHORT = Shape(short=Env.short)


def with_shared_environment(
    run: Mapping, environments: Mapping | None
) -> tuple[Mapping, tuple[Diagnostic, ...]]:
    """Write the fields of the environment that a run uses into its own `env`, places and all.

    Args:
        environments: the block of the project; `None` in a run file, which has none.

    Returns:
        The run, as it was where it uses none, and what is wrong.
    """
    env, used = _used(run)
    if used is None:
        return run, ()
    known = environments.entries if environments is not None else {}
    shared = known.get(used.text)
    if not isinstance(shared, Mapping):
        return run, (_unknown(used, known, project=environments is not None),)
    both = [name for name in _FIELDS if name in env.entries]
    if both:
        return run, tuple(_twice(name, used, env) for name in both)
    lent = replace(env, entries={**env.entries, **shared.entries}, keys={**env.keys, **shared.keys})
    return replace(run, entries={**run.entries, "env": lent}), ()


def _used(run: Mapping) -> tuple[Mapping, Scalar | None]:
    """The `env` block and the name in it."""
    env = run.entries.get("env")
    env = env and in_full(env, _SHORT)
    if not isinstance(env, Mapping):
        return run, None
    used = env.entries.get("use")
    if not isinstance(used, Scalar) or not used.text or (used.plain and is_null(used.text)):
        return env, None
    return env, used


def _unknown(used: Scalar, known: dict[str, Node], *, project: bool) -> Diagnostic:
    near = nearest(used.text, known)
    if near is not None:
        hint = f"did you mean `{near}`?"
    elif known:
        hint = "known: " + ", ".join(f"`{name}`" for name in known)
    elif project:
        hint = f"declare it: `environments: {{{used.text}: {{snapshot: true}}}}`"
    else:
        hint = "a run file declares its environment itself: `env: {snapshot: true}`"
    return Diagnostic(
        code="unknown_environment",
        summary=f"`env.use` names no environment: `{used.text[:80]}`",
        place=place_of(used),
        hint=hint,
    )


def _twice(name: str, used: Scalar, env: Mapping) -> Diagnostic:
    return Diagnostic(
        code="two_environments",
        summary=f"`env.use` is a whole environment, and `env.{name}` asks for another",
        place=env.keys[name],
        hint=f"move `{name}` to `environments.{used.text}`, or leave `use` out; a target that "
        "takes another environment says `use: null`",
        related=(Related(place=place_of(used), note="it is used here"),),
    )
