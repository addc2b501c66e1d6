"""Values in a store that does not answer now and then."""

from collections.abc import Callable

import pytest
from ray.exceptions import RaySystemError

from sgpu_decl.backends.ray.cluster import own_job
from sgpu_decl.backends.ray.cluster.own_job import find_job, pop_value

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_job, "_PAUSE", 0.0)


class Store:
    """Ray's store with one value, which does not answer the first calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, silent: int) -> None:
        self.values = {b"gcs://name": b"value"}
        self._silent = silent
        monkeypatch.setattr(own_job, "_internal_kv_get", lambda key: self._do(self.values.get, key))
        monkeypatch.setattr(own_job, "_internal_kv_del", lambda key: self._do(self.values.pop, key))

    def _do(self, call: Callable[[bytes], bytes | None], key: bytes) -> bytes | None:
        self._silent -= 1
        if self._silent >= 0:
            raise RaySystemError("the store does not answer")
        return call(key)


def test_a_value_is_returned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Store(monkeypatch, silent=0)
    assert pop_value("name") == b"value"
    assert pop_value("name", patience=60.0) is None


def test_a_job_is_what_ray_has_noted_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = {(b"_ray_internal_job_info_token", b"job"): b'{"status": "RUNNING"}'}
    monkeypatch.setattr(
        own_job, "_internal_kv_get", lambda key, *, namespace: noted.get((key, namespace))
    )
    assert find_job("token") == {"status": "RUNNING"}
    assert find_job("another") is None


def test_a_store_that_answers_later_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(monkeypatch, silent=3)
    assert pop_value("name") is None
    assert pop_value("name", patience=60.0) == b"value"
    assert store.values == {}


def test_a_value_that_cannot_be_deleted_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(monkeypatch, silent=0)

    def refuse(_: bytes) -> None:
        raise RaySystemError("the store does not answer")

    monkeypatch.setattr(own_job, "_internal_kv_del", refuse)
    assert pop_value("name", patience=0.01) == b"value"
    assert store.values
