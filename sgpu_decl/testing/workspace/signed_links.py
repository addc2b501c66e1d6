"""Links to single files that work without a token, as cloud storage gives them out."""

import hashlib
import hmac
from secrets import token_bytes

__all__ = ["Signer"]


class Signer:
    """Signs what a link allows; its key is as old as the server."""

    def __init__(self) -> None:
        self._key = token_bytes(32)

    def sign(self, *words: str) -> str:
        """The signature of an action, a tenant and a path."""
        return hmac.new(self._key, "\0".join(words).encode(), hashlib.sha256).hexdigest()

    def holds(self, signature: str, *words: str) -> bool:
        """Whether we gave out this signature for that."""
        return hmac.compare_digest(self.sign(*words), signature)
