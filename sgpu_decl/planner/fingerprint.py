"""What identifies a computation, and what identifies one launch of it."""

import base64
import hashlib
from collections.abc import Mapping

from sgpu_decl.model.address import Address
from sgpu_decl.model.jsonable import Json, Spec, canonical, digest
from sgpu_decl.planner.field_changes import join
from sgpu_decl.planner.policy import SWITCHES, FieldClass, class_of, has_entries_below

TOKEN_PREFIX = "sgpu1-"  # noqa: S105 - the version of the scheme, no secret


def fingerprint(spec: Spec, code_digest: str | None, environment_digest: str | None = None) -> str:
    """Return `sha256:<hex>` over the data fields of a config, its code and its declared
    environment. Launch and meta fields never change it."""
    return digest(
        canonical(
            {
                "data": _data_fields(spec.fields, ""),
                "code": code_digest,
                "environment": environment_digest,
            }
        )
    )


def token(lineage: str, address: Address, attempt: int, fingerprint: str) -> str:
    """Return the idempotency token of one launch: the same launch has the same token, so that a
    backend can be asked for it after a crash. At most 64 characters of `[a-z0-9-]`, which every
    backend accepts."""
    text = canonical([lineage, str(address), attempt, fingerprint])
    hashed = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return TOKEN_PREFIX + base64.b32encode(hashed).decode().rstrip("=").lower()


def _data_fields(spec: Mapping[str, Json], parent: str) -> dict[str, Json]:
    kept: dict[str, Json] = {}
    for key, value in spec.items():
        path = join(parent, key)
        if has_entries_below(path) and isinstance(value, Mapping):
            inner = _data_fields(value, path)
            if inner or path in SWITCHES:
                kept[key] = inner
        elif class_of(path) is FieldClass.DATA:
            kept[key] = value
    return kept
