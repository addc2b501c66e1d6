"""Recognises files with secrets, by name or content."""

import json
import os
import re
from fnmatch import translate

from sgpu_decl.regular_files import read_head

_FILES = re.compile("|".join(map(translate, (
    ".env*", "*.pem", "*.p12", "*.pfx", "*.ppk", "*.kdbx", "id_rsa*", "id_dsa*", "id_ecdsa*",
    "id_ed25519*", ".netrc", ".pgpass", ".git-credentials", ".pypirc", ".npmrc", ".databrickscfg",
    ".vault-token", "kubeconfig", "*.kubeconfig", "kaggle.json",
))))  # fmt: skip
_FOLDERS = frozenset({".aws", ".ssh", ".kube", ".gnupg"})
LOOK = 64 * 1024  # bytes of a file that are checked
MAY_HOLD_SECRET = ("", ".json", ".yaml", ".yml", ".key", ".conf")
"""The endings of the files whose content has to be checked."""

_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----")
_KUBECONFIG = re.compile(rb"^\s+(client-key-data|token|password)\s*:\s*\S", re.MULTILINE)
_ACCOUNT_FIELDS = (b'"private_key"', b'"refresh_token"')
_TOKEN = re.compile(rb"[!-~]{16,4096}")
_ENCODED_KEY = re.compile(rb"\x30[\x81-\x83]")  # DER, as PKCS #1 and PKCS #8 are written
_MOST_OF_ENCODED = 16 * 1024  # bytes


def is_secret(path: str) -> bool:
    """Whether a relative path is one where people keep secrets."""
    parts = path.split("/")
    return _FILES.match(parts[-1]) is not None or not _FOLDERS.isdisjoint(parts)


def content_is_secret(path: str) -> bool:
    """Whether an existing file holds a secret; false if it cannot be read."""
    if os.path.splitext(path)[1] not in MAY_HOLD_SECRET:
        return False
    try:
        return holds_secret(os.path.basename(path), read_head(path, LOOK))
    except OSError:
        return False


def holds_secret(name: str, head: bytes) -> bool:
    """Whether a file holds a private key, or credentials of a cloud account or cluster. A `*.key`
    may also be a slide show or a table. `head` is the start of the file."""
    if _PRIVATE_KEY.match(head.lstrip()):
        return True
    if name.endswith(".json"):
        return _is_cloud_account(head)
    if name.endswith(".key"):
        encoded = _ENCODED_KEY.match(head) is not None and len(head) < _MOST_OF_ENCODED
        return encoded or _TOKEN.fullmatch(head.strip()) is not None
    return b"clusters:" in head and b"users:" in head and _KUBECONFIG.search(head) is not None


def _is_cloud_account(head: bytes) -> bool:
    """The key of a service account, or the file of `gcloud auth application-default login`."""
    if not any(field in head for field in _ACCOUNT_FIELDS):
        return False
    try:
        account = json.loads(head)
    except (ValueError, RecursionError):
        return False
    return isinstance(account, dict) and account.get("type") in (
        "service_account",
        "authorized_user",
    )
