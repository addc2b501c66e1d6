"""Values that the client leaves in the cluster's key-value store, as packages of Ray's Jobs API."""

from __future__ import annotations

from ray.exceptions import RaySystemError, RpcError
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get


def pop_value(name: str) -> bytes | None:
    """Return a value and delete it; None if there is none, or if the store does not answer."""
    key = f"gcs://{name}".encode()
    try:
        value: bytes | None = _internal_kv_get(key)
        if value is not None:
            _internal_kv_del(key)
    except (RaySystemError, RpcError):
        return None
    return value
