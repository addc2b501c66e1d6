"""The value that a rank returns, written as JSON, or pickled if JSON would change it.

A part that cannot be pickled is named by its place in the value.
"""

import os
import sys

from sgpu_decl.rank.attempt_folder import Replaced, write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, BinaryIO

    from sgpu_decl.rank.attempt_folder import AttemptFolder

_SHOWN = "output.shown.json"  # a result without values of secrets, and the names of these
_LARGEST_BITS = 14_000  # Python writes no integer of more than 4,300 digits


def write_output(
    folder: "AttemptFolder", target: str, value: object, secrets: "Mapping[str, str]"
) -> None:
    """Write the value that the function returned to the folder `target`.

    If it holds values of secrets, a second file has it without them, for views.
    """
    if folder.replaced():
        raise Replaced("sgpu: the folder of this attempt was replaced: its result is not kept")
    try:
        plain = _lossless(value)
    except RecursionError:
        plain = False
    if isinstance(value, dict) and set(value) == {"pickle", "repr"}:
        plain = False  # or it would be taken for what stands in place of a pickled one
    if not plain:
        pickled = value
        write_file(target + "/output.pkl", lambda file: _dump(pickled, file))
        value = {"pickle": "output.pkl", "repr": _short_text(value)}  # relative: both may be moved
    if secrets:
        _write_short_text(target, value, secrets, plain=plain)
    text = "null"  # most functions return nothing, and importing json takes a millisecond
    if value is not None:
        import json

        text = json.dumps(value)
    write_file(target + "/output.json", lambda file: file.write(text.encode("utf-8")))


def _dump(value: object, file: "BinaryIO") -> None:
    if not sys.modules.keys() & {"numpy", "torch"}:
        pickler().dump(value, file, protocol=5)
        return
    import copyreg
    from collections import ChainMap

    from sgpu_decl.rank.storages import Storages

    base = pickler().Pickler
    tables = getattr(base, "dispatch_table", copyreg.dispatch_table)

    def dump(storages: Storages) -> None:
        made = type("Pickler", (base,), {"dispatch_table": ChainMap(storages.reducers(), tables)})
        made(file, protocol=5).dump(value)

    storages = Storages()
    dump(storages)
    if common := storages.shared():
        file.seek(0)
        file.truncate()
        dump(Storages(common))


def _write_short_text(
    target: str, value: "Any", secrets: "Mapping[str, str]", *, plain: bool
) -> None:
    import json

    from sgpu_decl.rank.secret_values import SecretValues

    values = SecretValues(secrets)
    if plain:
        names, hidden = values.names_in(value), values.hidden(value)
    else:
        import mmap

        with open(target + "/output.pkl", "rb") as file:
            names = values.names_in_bytes(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        # Its text was cut, maybe within a value.
        hidden = {**value, "repr": f"<holds values of secrets: {', '.join(names)}>"}
    if names:
        shown = {"value": hidden, "secrets": names}
        text = json.dumps(shown).encode("utf-8")
        write_file(f"{target}/{_SHOWN}", lambda file: file.write(text))


def forget_output(target: str) -> None:
    """Delete what a rank of an earlier restart returned."""
    for name in ("output.json", _SHOWN):
        try:
            os.unlink(f"{target}/{name}")
        except FileNotFoundError:
            continue


def pickler() -> "Any":
    """Return cloudpickle where it is installed, else pickle."""
    try:
        import cloudpickle
    except ImportError:
        import pickle

        return pickle
    return cloudpickle


def _lossless(value: object) -> bool:
    """Say whether JSON gives the same value back; subclasses do not come back as themselves."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return True
    if kind is int:
        return value.bit_length() < _LARGEST_BITS  # type: ignore[attr-defined, no-any-return]
    if kind is float:
        return value - value == 0  # type: ignore[operator, no-any-return]
    if kind is list:
        return all(map(_lossless, value))  # type: ignore[call-overload]
    if kind is dict:
        return all(type(key) is str and _lossless(part) for key, part in value.items())  # type: ignore[attr-defined]
    return False


def _short_text(value: object) -> str:
    """Return at most 200 characters of a value's text."""
    from reprlib import Repr

    short = Repr()
    short.maxstring = short.maxother = 200
    try:
        return short.repr(value)[:200]
    except Exception:  # noqa: BLE001 - a text that the value refuses to give fails no rank
        return f"<{type(value).__qualname__}>"
