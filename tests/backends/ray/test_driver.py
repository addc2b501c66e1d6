"""What the driver of a launch makes of its end."""

from typing import Any

import pytest

from sgpu_decl.backends.ray.cluster.driver import _after_stop


@pytest.mark.parametrize(
    ("state", "failure", "expected"),
    [
        ("succeeded", None, "succeeded"),
        ("failed", "exception", "failed"),
        ("failed", "node_lost", "cancelled"),  # perhaps by the stop
        ("cancelled", None, "cancelled"),
    ],
)
def test_a_stop_does_not_hide_that_the_code_had_failed_before(
    state: str, failure: str | None, expected: str
) -> None:
    outcome: dict[str, Any] = {"state": state, "class": failure}
    assert _after_stop(outcome)["state"] == expected
