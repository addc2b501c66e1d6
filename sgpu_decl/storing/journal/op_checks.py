"""What the ops of an entry may hold. Anybody who may write to a store can write an entry by another
way, and a value of another kind would be found by whatever command reads it last."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Address, cell_order
from sgpu_decl.model.backend_kinds import kind_named
from sgpu_decl.model.job import JobHandle
from sgpu_decl.model.jsonable import LARGEST_NUMBER, check_name
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.times import from_text
from sgpu_decl.storing.sqlite.rows import ATTEMPT_COLUMNS, INTENT_COLUMNS, attempt_of, intent_of

_DAY = 86_400.0

_Check = Callable[[Any], object]


def check_op(op: Any) -> None:
    """Check an op that was read.

    Raises:
        one of UNREADABLE: it lacks something, or holds values of another kind.
    """
    for name, check in _OPS.get(_text(op["op"]), {}).items():  # one of a newer sgpu has none
        try:
            check(op[name])
        except ValueError as error:
            raise ValueError(f"`{name}`: {error}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"`{_shown(value)}` should be text")
    check_name(value)
    return value


def _texts(cells: Any) -> None:
    for cell in cells.values():
        if isinstance(cell, str):
            _text(cell)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _number(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_NUMBER:
        raise ValueError(f"`{_shown(value)}` should be a number")


def _seconds(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"`{_shown(value)}` should be a number of seconds")
    if not (math.isfinite(value) and 0 <= value <= _DAY):
        raise ValueError(f"`{_shown(value)}` should be a number of seconds, of one day at most")


def _flag(value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"`{_shown(value)}` should be true or false")


def _time(value: Any) -> None:
    if from_text(_text(value)).tzinfo is None:
        raise ValueError(f"`{value}` should be a time with its zone")


def _address(value: Any) -> None:
    Address.parse(_text(value))


def _document(value: Any) -> None:
    if not isinstance(_FINITE.decode(_text(value)), dict):
        raise ValueError(f"`{_shown(value)}` should be the text of a JSON object")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"`{text[:40]}` is no number of JSON")
    return number


_FINITE = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def _maybe(check: _Check) -> _Check:
    return lambda value: None if value is None else check(value)


def _each(check: _Check) -> _Check:
    def check_all(value: Any) -> None:
        if not isinstance(value, list):
            raise ValueError(f"`{_shown(value)}` should be a list")
        for item in value:
            check(item)

    return check_all


def _fields(checks: Mapping[str, _Check]) -> _Check:
    def check_fields(value: Any) -> None:
        for name, check in checks.items():
            try:
                check(value[name])
            except ValueError as error:
                raise ValueError(f"`{name}`: {error}") from error

    return check_fields


def _inputs(address: Address, inputs: LaunchInputs) -> None:
    _document(inputs.spec.text)
    cell_order(address, inputs.cell)


def _reference(backend: str, reference: str | None) -> None:
    """Whether a backend can read what it recorded of a launch. One that is not installed here is
    not asked."""
    if reference is None:
        return
    try:
        check = kind_named(backend).check_reference
    except BackendError:
        return
    if check is not None:
        check(reference)


def _attempt(cells: Any) -> None:
    _texts(cells)
    attempt = attempt_of([cells.get(name) for name in ATTEMPT_COLUMNS])
    _inputs(attempt.ref.address, attempt.inputs)
    _reference(attempt.backend, attempt.reference)


def _intent(cells: Any) -> None:
    _texts(cells)
    intent = intent_of([cells.get(name) for name in INTENT_COLUMNS], "")
    if intent.launch is not None:
        _inputs(intent.address, intent.launch.inputs)
        _reference(intent.launch.backend, intent.launch.reference)
    if intent.job is not None:
        _document(intent.job.spec.text)
        _handle(intent.job.backend, intent.job.remote)


def _handle(backend: str, remote: str | None) -> None:
    """Whether it says where a job is kept."""
    if remote is None:
        return
    handle = JobHandle.parse(_text(remote))
    try:
        rules_of = kind_named(backend).jobs
    except BackendError:
        return
    if rules_of is not None and not rules_of().is_id(handle.id):
        raise ValueError(f"`{_shown(handle.id)}` is no id of a job")


def _resource(cells: Any) -> None:
    _resource_fields(cells)
    _handle(cells["backend"], cells["remote"])


_resource_fields = _fields(
    {
        "address": _address,
        "backend": _text,
        "owner": _text,
        "spec": _document,
        "gone": _flag,
        "numbered": _number,
        "remote": _maybe(_text),
        "last": _maybe(_attempt),
    }
)
_lists = _each(_fields({"digest": _text, "text": lambda value: json.loads(_text(value))}))
_lock = _fields(
    {
        "id": _text,
        "who": _text,
        "host": _text,
        "pid": _number,
        "boot": _maybe(_text),
        "started": _maybe(_text),
        "operation": _text,
        "since": _time,
    }
)
_OPS: dict[str, dict[str, _Check]] = {
    "lock": {"seconds": _seconds, "lock": _lock},
    "unlock": {"id": _text},
    "claim": {"repository": _text, "folder": _text},
    "begin": {"intent": _intent},
    "launched": {"intent": _intent, "resource": _resource, "attempt": _attempt},
    "made": {"intent": _intent, "resource": _resource},
    "abandon": {"intent": _intent},
    "record_resource": {"resource": _resource},
    "record_packages": {"lists": _lists},
    "record_attempts": {"attempts": _each(_attempt)},
    "plan_applied": {"plan_id": _text},
    "move": {"source": _address, "destination": _address},
    "remove": {"address": _address},
    "replace": {
        "serial": _number,
        "resources": _each(_resource),
        "attempts": _each(_attempt),
        "intents": _each(_intent),
        "lists": _lists,
    },
}
