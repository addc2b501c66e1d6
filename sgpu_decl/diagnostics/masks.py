"""Tokens and passwords that a user wrote literally: kept out of everything that is shown."""

import re
from functools import lru_cache
from typing import TypeVar

_SHORTEST = 10  # `ws://T@host` has one more
# A line with something to hide has one of these, in lower case. Few texts have any, so the patterns
# of `secret_texts`, which take 4 ms to make, are rarely loaded, and a log of 5 MB takes 30 ms.
_WORDS = ("://", "-----begin", "bearer", "authorization", "password=")
_NAMES = ("token", "secret", "pass", "credential", "key")
_BEGINNINGS = (  # of tokens
    "xox", "xapp-", "glpat-", "gldt-", "glrt", "glcbt-", "glptt-", "glft-", "gloas-", "glsoat-",
    "glagent-", "glffct-", "glimt-", "glwt-", "glsa_", "glc_", "npm_", "pypi-", "aiza", "ya29.",
    "gocspx-", "k_live_", "k_test_", "api_org_", "dose", "iqoj", "fwog", "fqog", "absk", "nvapi-",
    "r8_", "gsk_", "xai-", "pplx-", "hvb.", "hvs.", "hvr.", "sg.", "o_v1_", "p_v1_", "r_v1_",
    "dckr_", "wandb_v1_", "kgat_", "atatt3", "eyj", ":aa", "age-", "hf_", "dapi", "akia", "asia",
    "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_",
)  # fmt: skip
_LONG = b"w" * 15  # each token but one with `sk-` has a word of this length
_LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789_%+/=.~-"
_IN_WORDS = bytes(ord("w") if byte in _LETTERS else ord(" ") for byte in range(256))


def mask(text: str) -> str:
    """Return `text` for people and their programs: everything that looks like a token, a password
    or a secret address is hidden behind `***`."""
    if len(text) < _SHORTEST:
        return text
    lower = text.lower()
    tokens = ["sk-"] if "sk-" in lower else []
    if _LONG in lower.encode("ascii", "replace").translate(_IN_WORDS):
        tokens += [beginning for beginning in _BEGINNINGS if beginning in lower]
    words = [word for word in _WORDS if word in lower]
    words += [name for name in _NAMES if name in lower and _has_value(name, lower)]
    if not tokens and not words:
        return text
    from sgpu_decl.diagnostics.secret_texts import hidden

    return hidden(text, tokens, words)


def _has_value(name: str, lower: str) -> bool:
    """Whether a value follows this word, or a word that begins with it: `name=value`, or
    `--name value`."""
    after = r"[\w.-]*[= ]" if "--" in lower else r"[\w.-]*="
    return re.search(name + after, lower) is not None


Value = TypeVar("Value")


def masked(value: Value, name: str | None = None) -> Value:
    """Return a value of JSON with every text in it masked. With the `name` of a field that a user
    wrote, what it and the names below it call a secret is masked too."""
    return _masked(value, name)  # type: ignore[return-value]


def _masked(value: object, name: str | None) -> object:
    if isinstance(value, str):
        return "***" if name and _is_secret(name, value) else mask(value)
    if isinstance(value, list | tuple):
        # the value of an option stands after it: `["--token", "abc"]`
        options = ["", *(item if isinstance(item, str) else "" for item in value)]
        names = [option if option.startswith("--") else "" for option in options]
        return [
            _masked(item, None if name is None else option)
            for item, option in zip(value, names, strict=False)
        ]
    if isinstance(value, dict):
        return {
            mask(key): _masked(below, None if name is None else key) for key, below in value.items()
        }
    return value


@lru_cache(maxsize=1024)  # thousands of runs have the same few fields
def _may_be_secret(name: str) -> bool:
    lower = name.lower()
    return any(word in lower for word in _NAMES)


def _is_secret(name: str, value: str) -> bool:
    if not _may_be_secret(name):
        return False
    from sgpu_decl.diagnostics.secret_texts import is_secret

    return is_secret(name, value)
