"""`spec.json`: canonical bytes with every field of the contract."""

import json

import pytest

from sgpu_decl.config.ray import Ray
from sgpu_decl.rendering.spec import (
    CallSpec,
    Entry,
    Gpus,
    LaunchSpec,
    RaySpec,
    Tether,
    render_spec,
)


def spec(**fields: object) -> LaunchSpec:
    given = {
        "token": "t", "address": "run.a", "name": "a", "attempt": 1, "lineage": "l",
        "project_dir": "/p", "run_dir": "/r", "output_dir": "/r/output", "code_dir": "/r/code",
        "world_size": 2, "entry": Entry(kind="script", path="main.py", args=("a", 1)),
        "python": "/python", "gpus": Gpus(lock_dir="/g"), "port_lock_dir": "/l",
    }  # fmt: skip
    return LaunchSpec(**{**given, **fields})  # type: ignore[arg-type]


def test_the_same_values_give_the_same_bytes_whatever_their_order() -> None:
    one, two = spec(env={"A": "1", "B": "2"}), spec(env={"B": "2", "A": "1"})
    assert render_spec(one) == render_spec(two)


def test_blocks_and_lists_are_plain_json() -> None:
    data = json.loads(render_spec(spec()))
    assert data["v"] == 1
    assert data["entry"] == {
        "kind": "script", "path": "main.py", "module": None, "function": None, "command": None,
        "shell": None, "args": ["a", 1], "call": None,
    }  # fmt: skip
    assert data["gpus"] == {
            "devices": [], "need": 0, "lock_dir": "/g", "shared_lock_dir": "", "callers": [],
        }  # fmt: skip
    assert data["retry"] == {"max": 0, "on": ["infra"], "backoff": 1.0}
    assert (data["tracker"], data["parallel"], data["per"]) == (None, None, "rank")


def test_a_call_says_where_its_buffers_lie_and_what_it_is_tied_to() -> None:
    call = CallSpec(
        name="train", python="3.11", function_crc=1, inputs_crc=2, cloudpickle="3.1.2",
        path=("/a",), fill=("rank",), group=True, inputs_buffers=((0, 8), (64, 3)),
    )  # fmt: skip
    tied = spec(entry=Entry(kind="pickle", call=call), tether=Tether(pid=7, start=123))
    data = json.loads(render_spec(tied))
    assert data["tether"] == {"pid": 7, "start": 123}
    assert data["entry"]["call"] == {
        "name": "train", "python": "3.11", "function_crc": 1, "inputs_crc": 2,
        "cloudpickle": "3.1.2", "path": ["/a"], "fill": ["rank"], "group": True,
        "function_buffers": [], "inputs_buffers": [[0, 8], [64, 3]],
    }  # fmt: skip


def test_the_head_of_ray_has_three_minutes_and_nobody_says_another_default() -> None:
    assert Ray().head_startup_timeout.seconds == 180
    assert RaySpec(num_gpus=0).head_startup_timeout == 180


def test_a_number_that_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        render_spec(spec(entry=Entry(kind="script", args={"x": float("nan")})))
