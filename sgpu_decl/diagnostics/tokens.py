"""Tokens and passwords that no file of a user may hold literally, and names of variables that hold
such."""

import re

SHORTEST = 12
"""Text that is shorter holds no token."""

# Prefix kept (it says which kind of token it is), the rest hidden.
_TOKEN = re.compile(
    r"(?P<prefix>"
    r"(?<![A-Za-z0-9])hf_(?=[A-Za-z0-9]{20})"
    r"|(?<![A-Za-z0-9])dapi(?=[0-9a-f]{32})"
    r"|(?<![A-Za-z0-9])A[KS]IA(?=[0-9A-Z]{16})"
    r"|(?<![A-Za-z0-9])gh[pousr]_(?=[A-Za-z0-9]{36})"
    r"|(?<![A-Za-z0-9])github_pat_(?=[A-Za-z0-9_]{22})"
    r")[A-Za-z0-9_-]+"
    # of a URL; what begins like a reference (`$PASSWORD`) or stands for one (`<password>`) is none
    r"|(?P<url>://[^\s:@/'\"`]*:(?=[^\s@/'\"`$<{*][^\s@/'\"`]*@))[^\s@/'\"`]+"
    r"|(?P<query>[?&](?i:password)=(?=[^\s&'\"`$<{*]))[^\s&'\"`]+"
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
    if len(text) < SHORTEST:
        return None
    match = _TOKEN.search(text)
    if match is None:
        return None
    if match["url"] is not None or match["query"] is not None:
        return "a URL with a password"
    prefix = match["prefix"]
    if prefix is None:
        return "a private key"
    return _KINDS.get(prefix[:4]) or _KINDS.get(prefix) or "a GitHub token"


def mask_found(text: str) -> str:
    """Return `text` with what `find_token` finds hidden behind `***`. Specs hold such text, so it
    is the same in all versions."""
    if len(text) < SHORTEST:
        return text
    return _TOKEN.sub(_hidden, text)


def _hidden(match: re.Match[str]) -> str:
    return (match["prefix"] or match["url"] or match["query"] or match["pem"]) + "***"


_SECRET = re.compile(
    r"(.*(PASSWORD|PASSWD|PASSPHRASE|APIKEY|CREDENTIALS?)|(.+_)?(TOKEN|SECRET|KEY))[0-9_]*"
)
# What comes before `_KEY` and `_TOKEN` in names of other things: columns, words of a tokenizer.
_HARMLESS = re.compile(
    r"(.*_)?(PUBLIC|PUB|PRIMARY|FOREIGN|SORT|PARTITION|CACHE|GROUP|JOIN|ROW|COLUMN|INDEX|SHARD|LOOKUP"
    r"|DICT|DATA|FEATURE|LABEL|METRIC|IMAGE|TEXT|INPUT|OUTPUT|TARGET)_KEY[0-9_]*"
    r"|(.*_)?(PAD|EOS|BOS|UNK|CLS|SEP|MASK|START|END|STOP|SPECIAL|PER)_TOKEN[0-9_]*"
)


def names_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret: `HF_TOKEN` does. `MAX_TOKENS`, `MONKEY`,
    `SSH_PUBLIC_KEY` and the path in `SSH_KEY_FILE` are none."""
    upper = name.upper()
    return _SECRET.fullmatch(upper) is not None and _HARMLESS.fullmatch(upper) is None
