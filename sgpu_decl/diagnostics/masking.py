"""Tokens that a user wrote literally, and how they are kept out of everything that is shown."""

import re

__all__ = ["find_token", "mask"]

# Prefix kept (it says which kind of token it is), the rest hidden.
_TOKEN = re.compile(
    r"(?P<prefix>"
    r"(?<![A-Za-z0-9])hf_(?=[A-Za-z0-9]{20})"
    r"|(?<![A-Za-z0-9])dapi(?=[0-9a-f]{32})"
    r"|(?<![A-Za-z0-9])A[KS]IA(?=[0-9A-Z]{16})"
    r"|(?<![A-Za-z0-9])gh[pousr]_(?=[A-Za-z0-9]{36})"
    r"|(?<![A-Za-z0-9])github_pat_(?=[A-Za-z0-9_]{22})"
    r")[A-Za-z0-9_-]+"
    r"|(?P<pem>-----BEGIN [A-Z ]*PRIVATE KEY-----)(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)",
    re.DOTALL,
)
_KINDS = {
    "hf_": "a Hugging Face token",
    "dapi": "a Databricks token",
    "AKIA": "an AWS access key",
    "ASIA": "an AWS access key",
    "gith": "a GitHub token",
}


def find_token(text: str) -> str | None:
    """Return what kind of token `text` holds, in words, or `None`. The token is not returned."""
    if len(text) < 20:
        return None
    match = _TOKEN.search(text)
    if match is None:
        return None
    prefix = match["prefix"]
    if prefix is None:
        return "a private key"
    return _KINDS.get(prefix[:4]) or _KINDS.get(prefix) or "a GitHub token"


def mask(text: str) -> str:
    """Return `text` with everything that looks like a token hidden behind `***`."""
    if len(text) < 20:
        return text
    return _TOKEN.sub(lambda match: (match["prefix"] or match["pem"]) + "***", text)
