"""The file of `parameters`: every reader of YAML finds what the user wrote."""

import yaml
from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.backends.launch_spec import render_parameters

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["on", "no", "1e-5", "0x1f", "0o17", "1_000", "~", "12:30", ".5", "- a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1, max_size=5), VALUES, min_size=1, max_size=3))
def test_pyyaml_reads_what_was_written(parameters: dict[str, object]) -> None:
    assert yaml.safe_load(render_parameters(parameters)) == parameters  # type: ignore[arg-type]  # JSON


def test_numbers_and_text_stay_apart_for_readers_of_yaml_1_2() -> None:
    text = render_parameters({"lr": 1e-5, "name": "1e-5", "on": True, "bits": "0o17"})
    assert text == 'bits: "0o17"\nlr: 1.0e-05\nname: "1e-5"\n\'on\': true\n'
