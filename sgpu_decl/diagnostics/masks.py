"""Tokens and passwords that a user wrote literally: kept out of everything that is shown."""

from functools import lru_cache
from typing import TypeVar

__all__ = ["mask", "masked"]

_SHORTEST = 10  # `ws://T@host` has one more
# One of these stands in each text with something to hide. Few texts have any, so that the patterns
# of `secret_texts`, which take 4 ms to make, are rarely loaded.
_HINTS = (
    "@", "sk-", "xox", "xapp-", "glpat-", "gldt-", "glrt", "glcbt-", "glptt-", "glft-", "gloas-",
    "glsoat-", "glagent-", "glffct-", "glimt-", "glwt-", "glsa_", "glc_", "npm_", "pypi-", "AIza",
    "ya29.", "GOCSPX-", "k_live_", "k_test_", "api_org_", "dose", "IQoJ", "FwoG", "FQoG", "ABSK",
    "nvapi-", "r8_", "gsk_", "xai-", "pplx-", "hvb.", "hvs.", "hvr.", "SG.", "o_v1_", "p_v1_",
    "r_v1_", "dckr_", "wandb_v1_", "KGAT_", "ATATT3", "eyJ", ":AA", "AGE-", "hf_", "dapi", "AKIA",
    "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "PRIVATE KEY", "hooks",
    "trigger/", "telegram.org", "earer", "uthorization", "ignature", "sig=", "key=", "KEY", "oken",
    "OKEN", "ecret", "ECRET", "assw", "ASSW", "redential", "REDENTIAL", "api_key", "api-key",
    "apikey", "PASSPHRASE", "passphrase",
)  # fmt: skip


_SECRET_NAMES = ("TOKEN", "SECRET", "KEY", "PASS", "CREDENTIAL")


def mask(text: str) -> str:
    """Return `text` for people and their programs: everything that looks like a token, a password
    or a secret address is hidden behind `***`."""
    if len(text) < _SHORTEST or not any(hint in text for hint in _HINTS):
        return text
    from sgpu_decl.diagnostics.secret_texts import hidden

    return hidden(text)


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
    upper = name.upper()
    return any(word in upper for word in _SECRET_NAMES)


def _is_secret(name: str, value: str) -> bool:
    if not _may_be_secret(name):
        return False
    from sgpu_decl.diagnostics.secret_texts import is_secret

    return is_secret(name, value)
