import importlib.util
from collections.abc import Iterator
from typing import get_args

import pytest

from sgpu_decl.model.plan import FieldEffect
from sgpu_decl.planner.policy import POLICY, FieldClass, class_of, effect_of

DATA, LAUNCH, META = FieldClass.DATA, FieldClass.LAUNCH, FieldClass.META


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("gpus", DATA),
        ("args.n", DATA),
        ("args.timeout", DATA),
        ("env.variables.LR", DATA),
        ("launch.per", DATA),
        ("launch.master_port", LAUNCH),
        ("code.link", DATA),
        ("code.include", META),
        ("retry.max", LAUNCH),
        ("lifecycle.ignore_changes", META),
        ("name", FieldClass.IDENTITY),
        ("renamed_from", FieldClass.IDENTITY),
        ("matrix.lr", FieldClass.IDENTITY),
        ("a_field_of_tomorrow", DATA),
    ],
)
def test_a_path_has_the_class_of_its_longest_entry(path: str, expected: FieldClass) -> None:
    assert class_of(path) is expected


def test_every_entry_says_why() -> None:
    assert all(rule.why for rule in POLICY.values())


def test_in_place_needs_a_backend_that_can_and_an_active_attempt() -> None:
    can = frozenset({"retry"})
    assert effect_of("retry.max", can, active=True) is FieldEffect.IN_PLACE
    assert effect_of("retry.max", can, active=False) is FieldEffect.NEXT_ATTEMPT
    assert effect_of("retry.max", frozenset(), active=True) is FieldEffect.NEXT_ATTEMPT
    assert effect_of("tags.a", can, active=True) is FieldEffect.STATE_ONLY
    assert effect_of("gpus", frozenset({"gpus"}), active=True) is FieldEffect.NEW_ATTEMPT


def _field_paths(model: type, parent: str = "") -> Iterator[str]:
    from pydantic import BaseModel

    fields: dict[str, object] = model.model_fields  # type: ignore[attr-defined]
    for name, info in fields.items():
        path = f"{parent}{getattr(info, 'alias', None) or name}"
        yield path
        annotation = getattr(info, "annotation", None)
        for inner in (annotation, *get_args(annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from _field_paths(inner, f"{path}.")


def test_every_field_of_a_run_is_classified() -> None:
    if importlib.util.find_spec("sgpu_decl.config") is None:
        pytest.skip("this installation has no config room")
    from sgpu_decl.config.run import RunConfig

    paths = list(_field_paths(RunConfig))
    missing = [path for path in paths if path.partition(".")[0] not in POLICY]
    assert missing == [], "classify them in sgpu_decl/planner/policy.py"
    # The other way round: an entry for a field that is gone is a rule that nobody can read right.
    stale = {path for path in POLICY if path not in paths} - {"variables", "targets", "matrix"}
    assert stale == set()
