import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.model.jsonable import NO_FIELDS, Spec
from sgpu_decl.planner.field_changes import compare, covered, join, leaves

SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=3)
KEYS = st.text(max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
SPECS = st.dictionaries(KEYS, VALUES, max_size=4)


def paths(before: object, after: object) -> list[str]:
    return [item.path for item in compare(Spec.of(before), Spec.of(after))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ({"args": {"n": 1}}, {"args": {"n": 2}}, "args.n"),
        ({"args": {}}, {"args": {"n": 2}}, "args.n"),
        ({}, {"args": {"n": 2}}, "args.n"),
        ({"args": {"n": 2}}, {}, "args.n"),
        ({}, {"ray": {}}, "ray"),
        ({}, {"ray": {"port": 1}}, "ray"),
        ({"ray": {"port": 1}}, {}, "ray"),
        ({"ray": {}}, {"ray": {"port": 1}}, "ray.port"),
        ({"args": [1]}, {"args": [1, 2]}, "args"),
        ({"args": [1]}, {"args": {"n": 1}}, "args"),
        ({"args": {"a.b": 1}}, {"args": {"a.b": 2}}, 'args."a.b"'),
        ({"n": 1}, {"n": 1.0}, "n"),
        ({"n": 1}, {"n": True}, "n"),
        ({"n": [1]}, {"n": [True]}, "n"),
    ],
)
def test_one_changed_field_is_one_path(before: object, after: object, path: str) -> None:
    assert paths(before, after) == [path]


def test_a_secret_is_shown_by_its_reference() -> None:
    (item,) = compare(NO_FIELDS, Spec.of({"env": {"secrets": {"T": "env:T"}}}))
    assert item.after == {"secret": "env:T"}


def test_a_switch_without_options_is_shown_as_it_is_written() -> None:
    (item,) = compare(NO_FIELDS, Spec.of({"ray": {}}))
    assert (item.path, item.before, item.after) == ("ray", None, True)
    assert list(leaves({"ray": {}, "run": {"ray": {}}})) == [("ray", True), ("run.ray", True)]


def test_ignored_paths_cover_what_lies_below_them_and_nothing_else() -> None:
    assert covered("args.n.m", ["args.n"])
    assert not covered("args.nn", ["args.n"])


def test_odd_keys_are_quoted() -> None:
    assert join("env.variables", "A B") == 'env.variables."A B"'
    assert join("args", "") == 'args.""'


@given(SPECS)
def test_nothing_differs_from_itself(spec: dict[str, object]) -> None:
    assert paths(spec, spec) == []


@given(SPECS, SPECS)
def test_what_differs_is_what_is_written_differently(
    one: dict[str, object], two: dict[str, object]
) -> None:
    # An empty mapping that appears below others may be the only difference, and is one path too.
    assert (paths(one, two) == []) == (Spec.of(one) == Spec.of(two))  # type: ignore[arg-type]
    assert paths(one, two) == paths(two, one)
    assert paths(one, two) == sorted(set(paths(one, two)))


@given(SPECS, KEYS, SCALARS)
def test_a_new_scalar_is_one_path(spec: dict[str, object], key: str, value: object) -> None:
    before = {k: v for k, v in spec.items() if k != key}
    assert paths(before, {**before, key: value}) == [join("", key)]


@given(SPECS)
def test_leaves_have_unique_paths(spec: dict[str, object]) -> None:
    found = [path for path, _ in leaves(spec)]  # type: ignore[arg-type]
    assert len(found) == len(set(found))
