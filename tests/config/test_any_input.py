"""Whatever stands at whatever path: findings, never an exception, and never pydantic's words."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.excerpts import excerpt
from tests.reading import read

FIELDS = [*RunConfig.model_fields, "variables", "targets", "runs", "project", "jobs", "include"]
BLOCK_KEYS = [
    "max", "on", "per", "warm", "kind", "variables", "secrets", "root", "enabled", "name", "run",
    "default", "RANK", "A", "lr",
]  # fmt: skip
scalars = st.sampled_from(
    [None, True, 0, 1, -1, 1.5, "", "x", "1", "a.py", "a.py:f", "6h", "infra", "local", "CPU",
     "env:A", "s/k", "${var.a}", "${matrix.lr}", "x${matrix.lr}", "${env.A}", "${git.commit}", "a"]
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(BLOCK_KEYS + FIELDS), inner, max_size=3)
    ),
    max_leaves=8,
)
good = {"name": "a", "gpus": 1, "type": "CPU", "entrypoint": "a.py:f"}


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=4),
    st.sampled_from([None, "a", "lr"]),
    st.lists(
        st.tuples(
            st.sampled_from(["gpus", "args.x", "env.variables.A", "runs.a.gpus"]), st.just("[1]")
        ),
        max_size=1,
    ),
)
def test_any_values_anywhere(
    some: dict[str, Any], target: str | None, sets: list[tuple[str, str]]
) -> None:
    text = json.dumps(good | some)
    loaded, found = read(
        text, "run.yaml", target=target, variables=(), sets=sets, environ={"A": "1"}, git=dict
    )
    assert (loaded is None) == bool(found)
    for one in found:
        shown = excerpt(one, text)
        assert "pydantic" not in shown.lower()
        assert "Input should" not in shown
        assert "{path}" not in shown
        assert "{given}" not in shown
        assert one.code != "invalid_value", one
        assert one.place is not None
