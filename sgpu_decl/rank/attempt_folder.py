"""The folder of an attempt, as its ranks see it: the spec, and files that are written whole."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO


class UnusableSpec(Exception):
    """The entrypoint cannot be loaded: a file, module or function is missing."""


class Replaced(SystemExit):
    """The folder of this attempt was replaced: this process must not write into it."""


class AttemptFolder:
    """The folder. The checksum of its spec shows whether another attempt has taken its place."""

    def __init__(self, path: str, spec_sha256: str) -> None:
        self.path = path
        self._spec_sha256 = spec_sha256

    def read_spec(self) -> "dict[str, Any]":
        """Return the spec; its code folder is absolute.

        Raises:
            UnusableSpec: it is another one.
            OSError: it is gone.
        """
        with open(self.path + "/spec.json", "rb") as file:
            data = file.read()
        if _sha256(data) != self._spec_sha256:
            raise UnusableSpec("`spec.json` is not the one that this entrypoint was rendered for")
        spec: dict[str, Any] = _parse(data.decode("utf-8", "surrogateescape"))
        if not spec["code_dir"].startswith("/"):  # on nodes it is relative to the run's folder
            spec["code_dir"] = self.path + "/" + spec["code_dir"]
        return spec

    def replaced(self) -> bool:
        """Say whether another attempt lies here by now.

        That happens when somebody deletes the state while a run is active, and applies again.
        """
        try:
            self.read_spec()
        except UnusableSpec:
            return True
        except OSError:
            return False  # it is gone, and the next write says so
        return False


def write_file(path: str, fill: "Callable[[BinaryIO], object]") -> None:
    """Put a file in place whole, once `fill` has written it."""
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            fill(file)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _sha256(data: bytes) -> str:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]  # loads in a tenth of the time of hashlib's OpenSSL
    except ImportError:
        from hashlib import sha256
    digest: str = sha256(data).hexdigest()
    return digest


class _Context:
    """The attributes of a decoder that the C scanner reads."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float
    memo: dict[str, str] = {}  # noqa: RUF012 - an attribute of the protocol


def _parse(text: str) -> "Any":
    """Return a JSON value. The C scanner is used directly if possible, which saves importing
    `re`."""
    try:
        from _json import make_scanner

        return make_scanner(_Context)(text, 0)[0]  # type: ignore[arg-type]
    except (ImportError, AttributeError, TypeError):
        import json

        return json.loads(text)
