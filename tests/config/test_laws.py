"""Laws of reading: stable, and one changed scalar is one changed path."""

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.run_reader import spec_of
from sgpu_decl.diagnostics.place import Place
from tests.reading import clean, read_call

Good = Callable[..., Loaded]

names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
words = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn", "Co"]), max_size=12
).filter(
    lambda text: "$" not in text and not text.startswith("~")
)  # a file warns of shell references
scalars = (
    st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
durations = st.integers(1, 100_000).map(lambda n: f"{n}s")
runs = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,12}", fullmatch=True),
        "gpus": st.integers(1, 64).map(lambda n: n * 8),
        "type": st.sampled_from(["A10", "H100", "B300", "CPU", "a10g", "gpu_8xh100"]),
        "entrypoint": st.just("train.py:main"),
    },
    optional={
        "args": st.dictionaries(names, values, max_size=4),
        "description": words,
        "tags": st.dictionaries(names, words, max_size=2),
        "timeout": durations,
        "grace": durations,
        "retry": st.fixed_dictionaries({"max": st.integers(0, 5), "backoff": durations}),
        "env": st.fixed_dictionaries(
            {"variables": st.dictionaries(st.from_regex(r"X[A-Z]{0,5}", fullmatch=True), words)}
        ),
        "until": st.sampled_from(["success", "always"]),
        "backend": st.sampled_from(["local", "ray", "databricks"]),
        "mlflow": st.fixed_dictionaries(
            {"enabled": st.booleans(), "experiment": words.filter(bool)}
        ),
    },
)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path


def different(one: Any, other: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            changed
            for key in one.keys() | other.keys()
            for changed in different(one.get(key), other.get(key), (*path, key))
        }
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return {
            changed
            for index, pair in enumerate(zip(one, other, strict=True))
            for changed in different(*pair, (*path, index))
        }
    return set() if (type(one), one) == (type(other), other) else {path}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(runs)
def test_reading_is_stable(good: Good, run: dict[str, Any]) -> None:
    text = json.dumps(run, ensure_ascii=False)
    first = good(text).runs[0]
    assert good(text).runs[0].spec == first.spec
    again = RunConfig.model_validate(first.spec.fields | {"name": run["name"]})
    assert again == first.config
    assert spec_of(again) == first.spec
    rewritten = json.dumps(first.spec.fields | {"name": run["name"]}, ensure_ascii=False)
    assert good(rewritten).runs[0].spec == first.spec


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(runs, st.data())
def test_one_changed_scalar_is_one_changed_path(
    good: Good, run: dict[str, Any], data: st.DataObject
) -> None:
    paths = [path for path in leaves(run) if path[0] in ("args", "env", "tags")]
    if not paths:
        run["args"], paths = {"n": 1}, [("args", "n")]
    path = data.draw(st.sampled_from(paths))
    before = dict(good(json.dumps(run, ensure_ascii=False)).runs[0].spec.fields)
    changed = json.loads(json.dumps(run, ensure_ascii=False))
    holder = changed
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = "something else entirely"
    after = dict(good(json.dumps(changed, ensure_ascii=False)).runs[0].spec.fields)
    assert different(before, after) == {path}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(runs, st.sets(st.sampled_from(["description", "env", "timeout", "entrypoint"]), min_size=1))
def test_a_cell_is_the_run_that_one_would_write_for_it(
    good: Good, run: dict[str, Any], where: set[str]
) -> None:
    def written(x: str, t: str) -> dict[str, Any]:
        """The run with the values of the axes `x` and `t` in these places."""
        places = {
            "description": f"of {x}",
            "env": {"variables": {"X": x, "Y": "1"}},
            "timeout": t,
            "entrypoint": f"{x}.py:main",
        }
        return {**run, **{field: places[field] for field in where}}

    axes = {"x", "t"}  # an argument of such a name would be replaced, with a warning
    if "args" in run:
        run = {**run, "args": {key: one for key, one in run["args"].items() if key not in axes}}
    xs, ts = ["a", "b-2", "7"], ["5s", "90s"]
    matrix = {**written("${matrix.x}", "${matrix.t}"), "matrix": {"x": xs, "t": ts}}
    cells = good(json.dumps(matrix, ensure_ascii=False))
    assert [cell.address.key for cell in cells.runs] == [
        f"t={t},x={json.dumps(x) if x == '7' else x}" for t in ts for x in xs
    ]
    for cell, (t, x) in zip(cells.runs, itertools.product(ts, xs), strict=True):
        alone = {**written(x, t), "args": {**run.get("args", {}), "x": x, "t": t}}
        (other,) = good(json.dumps(alone, ensure_ascii=False)).runs
        assert (cell.config, cell.spec) == (other.config, other.spec)


def call(said: dict[str, Any], **options: Any) -> Loaded:
    return clean(read_call(said, place=Place("a.py", 1, 1), **options))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(runs)
def test_a_call_is_the_run_file_that_one_would_write_for_it(
    good: Good, run: dict[str, Any]
) -> None:
    run = {**run, "name": "train"}
    text = good(json.dumps(run, ensure_ascii=False))
    made = call({key: value for key, value in run.items() if key != "name"})
    assert made.runs == text.runs
    assert made.config_digest == text.config_digest


parts = st.fixed_dictionaries(
    {},
    optional={
        "description": words,
        "timeout": durations,
        "tags": st.dictionaries(st.sampled_from("abc"), words, max_size=2),
        "retry": st.fixed_dictionaries(
            {}, optional={"max": st.integers(0, 5), "backoff": durations}
        ),
        "env": st.fixed_dictionaries(
            {"variables": st.dictionaries(st.sampled_from("XYZ"), words, max_size=2)}
        ),
    },
)


def laid(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: laid(base[key], value)
        for key, value in over.items()
        if isinstance(value, dict) and key in base
    }
    return {**base, **over, **both}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.tuples(parts, parts, parts, parts))
def test_what_is_said_last_wins_field_by_field(
    good: Good, layers: tuple[dict[str, Any], ...]
) -> None:
    fallback, functions, said, over = layers
    least = {"gpus": 1, "type": "CPU", "entrypoint": "m:f"}
    project = {"functions": functions, "targets": {"t": {"functions": over}}}
    made = call(
        {**least, **said},
        fallback=fallback,
        project=json.dumps(project, ensure_ascii=False),
        target="t",
    )
    run = {**least, "name": "train"}
    for layer in layers:
        run = laid(run, layer)
    assert made.runs == good(json.dumps(run, ensure_ascii=False)).runs
