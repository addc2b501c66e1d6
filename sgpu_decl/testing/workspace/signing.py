"""Links to single artifacts that work without a token, as cloud storage gives them out."""

import hashlib
import hmac
from secrets import token_bytes

__all__ = ["Signer"]


class Signer:
    """Signs paths of one tenant's runs; its key is as old as the server."""

    def __init__(self) -> None:
        self._key = token_bytes(32)

    def sign(self, tenant: str, run_id: str, path: str) -> str:
        """The signature of a path."""
        text = "\0".join((tenant, run_id, path)).encode()
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()

    def holds(self, signature: str, tenant: str, run_id: str, path: str) -> bool:
        """Whether we gave out this signature for that."""
        return hmac.compare_digest(self.sign(tenant, run_id, path), signature)
