import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sgpu_decl.functions.call_arguments import readable_arguments
from sgpu_decl.model.jsonable import canonical


def test_json_is_shown_as_it_is_and_the_rest_in_few_words() -> None:
    shown = readable_arguments(
        {
            "epochs": 5,
            "lr": 1e-3,
            "name": "010",
            "flags": {"a": [True, None]},
            "data": np.zeros((3, 4)),
            "many": list(range(10_000)),
            "raw": b"12345",
            "nan": float("nan"),
            "object": object(),
        }
    )
    assert shown == {
        "epochs": 5,
        "lr": 1e-3,
        "name": "010",
        "flags": {"a": [True, None]},
        "data": "<numpy.ndarray (3, 4)>",
        "many": "<list of 10000>",
        "raw": "<bytes of 5>",
        "nan": "nan",
        "object": "<object>",
    }


def test_what_looks_like_a_token_is_hidden() -> None:
    shown = readable_arguments({"token": "hf_" + "a" * 34, "deep": {"x": ["dapi" + "0" * 32]}})
    assert "aaaa" not in json.dumps(shown)
    assert "0000" not in json.dumps(shown)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.sets(st.integers()),
    max_leaves=20,
)))  # fmt: skip
def test_whatever_is_given_fits_in_a_spec(named: dict[str, object]) -> None:
    canonical(readable_arguments(named))


def test_an_integer_that_python_would_not_write_is_shown_all_the_same() -> None:
    shown = readable_arguments({"n": 10**5000, "many": [-(10**5000), 1]})
    assert str(shown["n"]).startswith("0x")
    assert len(canonical(shown)) < 10_000
    assert canonical(shown) != canonical(readable_arguments({"n": 1, "many": []}))
