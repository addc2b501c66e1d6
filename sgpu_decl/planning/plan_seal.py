"""The seal of a saved plan. It proves that somebody with the key made the plan as it is.

A seal is the HMAC-SHA256 (RFC 2104) of the canonical text of the plan, with all of its keys but
`seal`. It is checked on the JSON as it was read: a plan of a newer sgpu has keys that a `Plan` of
this one does not.
"""

from collections.abc import Mapping

from sgpu_decl.model.jsonable import Json, canonical

__all__ = ["SEAL", "has_good_seal", "with_seal"]

SEAL = "seal"  # the key in a saved plan
_SCHEME = "hmac-sha256:"


def with_seal(saved: Mapping[str, Json], key: str) -> dict[str, Json]:
    """Return a saved plan with its seal; without a key, as it is."""
    return {**saved, SEAL: _seal(saved, key)} if key else dict(saved)


def has_good_seal(saved: Mapping[str, Json], key: str) -> bool:
    """Whether a saved plan has the seal that the key makes. Without a key, no seal is good."""
    import hmac

    seal = saved.get(SEAL)
    if not key or not isinstance(seal, str):
        return False
    rest = {name: item for name, item in saved.items() if name != SEAL}
    return hmac.compare_digest(_bytes(seal), _bytes(_seal(rest, key)))


def _seal(saved: Mapping[str, Json], key: str) -> str:
    import hmac

    return _SCHEME + hmac.new(_bytes(key), _bytes(canonical(saved)), "sha256").hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
