import json
import pickle
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sgpu_decl import distributed
from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.captured_values import loaded_packages
from sgpu_decl.functions.pickles import PicklePart, mentions
from sgpu_decl.functions.pickles import pickled as pickled_parts
from sgpu_decl.model.call import Pickled
from tests.support import refusing

LOCK = threading.Lock()


def pickled(value: object, what: str) -> Pickled:
    (one,) = pickled_parts(PicklePart(value=value, what=what))
    return one


class Model:
    def __init__(self) -> None:
        self.cache = {"rows": [1, 2], "guard": threading.Lock()}


def test_large_arrays_lie_beside_the_stream_and_are_not_copied() -> None:
    array = np.arange(1_000_000)

    def train() -> object:
        return array.sum()

    found = pickled(train, "`train`")
    assert len(found.stream) < 10_000
    assert [buffer.nbytes for buffer in found.buffers] == [array.nbytes]
    assert np.shares_memory(np.frombuffer(found.buffers[0], array.dtype), array)
    assert pickle.loads(found.stream, buffers=found.buffers)() == array.sum()


def test_small_arrays_go_with_the_stream_and_large_ones_beside_it_in_one_piece() -> None:
    found = pickled((np.arange(10), np.arange(100_000)[::2]), "it")
    assert [buffer.nbytes for buffer in found.buffers] == [400_000]
    first, second = pickle.loads(found.stream, buffers=found.buffers)
    assert list(first) == list(range(10))
    assert second[-1] == 99_998


class Switches(ModuleType):
    """A module of a type of its own, as `torch.backends.cudnn` is: it guards its settings."""

    fast = True


def test_a_module_of_its_own_type_is_sent_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = Switches("json.switches")
    monkeypatch.setitem(sys.modules, "json.switches", switches)

    def uses_it() -> object:
        return switches

    def has_an_attribute_of_its_name(panel: Any) -> object:
        return json.dumps(panel.switches)

    assert pickle.loads(pickled(uses_it, "it").stream)() is switches
    sent = pickle.loads(pickled(has_an_attribute_of_its_name, "it").stream)
    assert sent(SimpleNamespace(switches=[1])) == "[1]"


def test_a_module_that_cannot_be_found_by_its_name_is_refused() -> None:
    gone = Switches("gone")

    def uses_it() -> object:
        return gone

    assert "`gone`" in _message(uses_it)


def with_lock() -> None:
    def inner() -> object:
        return LOCK

    inner()


def with_default(guard: object = LOCK) -> object:
    return guard


def _message(value: object) -> str:
    with refusing("unpicklable", InvalidInput) as caught:
        pickled(value, "`train`")
    return str(caught.value)


def test_a_captured_variable_is_named() -> None:
    guard = threading.Lock()

    def train() -> object:
        return guard

    message = _message(train)
    assert "`train` cannot be sent to ranks" in message
    assert "the captured variable `guard` holds a `_thread.lock`" in message


def test_what_hangs_below_a_captured_variable_is_named() -> None:
    model = Model()

    def train() -> object:
        return model

    assert "the captured variable `model.cache['guard']` holds" in _message(train)


def test_code_keeps_the_name_of_its_file_and_the_rest() -> None:
    """cloudpickle 3.1.3 and newer leave the name out, which tracebacks need."""

    def train(scale: float) -> object:
        return list(map(lambda value: value * scale, range(3)))  # noqa: C417  two codes

    found = pickle.loads(pickled(train, "`train`").stream)
    for code in (found.__code__, *(c for c in found.__code__.co_consts if hasattr(c, "co_code"))):
        assert code.co_filename == __file__
    assert found.__code__ == train.__code__
    assert found(2.0) == [0.0, 2.0, 4.0]
    assert pickled(train, "`train`").stream == pickled(train, "`train`").stream


def test_a_generator_and_an_open_file_are_named(tmp_path: Path) -> None:
    rows = (row for row in range(3))

    def train() -> object:
        return rows

    assert "the captured variable `rows` holds a `generator`" in _message(train)
    with (tmp_path / "log").open("w") as log:

        def write() -> object:
            return log

        assert "the captured variable `log` holds a `_io.TextIOWrapper`" in _message(write)


def test_what_hangs_below_the_object_of_a_method_is_named() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.guard = threading.Lock()

        def train(self) -> None: ...

    assert "its object `.guard` holds a `_thread.lock`" in _message(Trainer().train)


def test_an_argument_is_named() -> None:
    def train(*sizes: object, guard: object) -> None: ...

    decorated = distributed(gpus=1, gpu_type="CPU")(train)
    with pytest.raises(InvalidInput, match=r"the argument `guard\['a'\]` holds a `_thread.lock`"):
        decorated.plan(1, guard={"a": LOCK})
    with pytest.raises(InvalidInput, match=r"the argument `sizes\[1\]` holds a `_thread.lock`"):
        decorated.plan(1, LOCK, guard=1)


def test_a_function_without_a_module_travels() -> None:
    scope: dict[str, Any] = {"__builtins__": __builtins__}
    exec("def train(x):\r\n    return x\r\n", scope)
    assert scope["train"].__module__ is None
    assert pickle.loads(pickled(scope["train"], "it").stream)(3) == 3
    assert loaded_packages(scope["train"]) == frozenset()


def test_a_lambda_with_a_lock_names_it() -> None:
    guard = threading.Lock()
    assert "the captured variable `guard`" in _message(lambda: guard)


def test_a_mention_is_a_whole_word() -> None:
    assert mentions(b"import torch\n", "torch")
    assert mentions(b"x torch.nn y", "torch")
    assert not mentions(b"torchvision pytorch", "torch")
