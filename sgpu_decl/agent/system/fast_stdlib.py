"""`signal` and `json` from their C modules, without enum and re, which the Python modules import.

Those take 8 ms of the 20 ms in which the agent starts, and ranks wait for that. If an interpreter
lacks one of the C modules, or has another version of it, the usual module is used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    try:
        import _signal as signal
    except ImportError:
        import signal

__all__ = ["dumps", "loads", "signal", "signal_name"]

_NAMES = {
    int(number): name
    for name, number in vars(signal).items()
    if name.startswith("SIG") and isinstance(number, int)
    if not name.startswith("SIG_") and name not in ("SIGCLD", "SIGIOT", "SIGPOLL")
}
_BLANK = " \t\n\r"


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9; a number without a name stays a number."""
    return _NAMES.get(number, f"SIG{number}")


class _Options:
    """The options of the scanner: plain JSON, NaN and the infinities included."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float
    memo: dict[str, str] = {}  # noqa: RUF012  the scanner's own, emptied by it


def _no_json(value: object) -> Any:
    raise TypeError(f"a {type(value).__name__} cannot be JSON")


try:
    from _json import encode_basestring, make_encoder, make_scanner

    _scan = make_scanner(_Options)  # type: ignore[arg-type]  # any object with these names
    _encoder = make_encoder(None, _no_json, encode_basestring, None, ":", ",", False, False, True)  # noqa: FBT003
    _encoder([0.5, {"a": None}], 0)
except (ImportError, AttributeError, TypeError):
    import json

    def loads(text: str | bytes) -> Any:
        return json.loads(text)

    def dumps(value: object) -> str:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

else:

    def loads(text: str | bytes) -> Any:
        """Return a JSON value.

        Raises:
            ValueError: the text is not JSON, or not UTF-8.
            RecursionError: it is nested too deeply.
        """
        whole = (text if isinstance(text, str) else text.decode()).strip(_BLANK)
        try:
            value, end = _scan(whole, 0)
            if end == len(whole):
                return value
        except (StopIteration, SystemError, ValueError):
            # The scanner cannot raise its own error while `json.decoder` is not loaded.
            pass
        import json

        return json.loads(text)  # raises, and says where

    def dumps(value: object) -> str:
        """Return a value as compact JSON, not limited to ASCII.

        Raises:
            TypeError: it cannot be JSON.
        """
        return "".join(_encoder(value, 0))
