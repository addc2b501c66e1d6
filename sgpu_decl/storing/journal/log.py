"""Entries of a journal, as `sgpu state log` shows them."""

from collections.abc import Iterator
from typing import Any

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.project_home import ProjectHome
from sgpu_decl.model.state_log import ApplySource, LogChange, LogEntry
from sgpu_decl.storing.journal.entry import damaged, read_entry
from sgpu_decl.storing.journal.op_checks import check_op
from sgpu_decl.storing.journal.port import Stored
from sgpu_decl.storing.state_json import UNREADABLE, problem_of


def log_entry(stored: Stored, *, store: str) -> LogEntry:
    """What an entry of `store` says.

    Raises:
        StateError: it cannot be read, or was written by a newer sgpu.
    """
    entry = read_entry(stored.number, stored.text, store=store)
    try:
        for op in entry.ops:
            check_op(op)
        changes = tuple(
            LogChange(op=op["op"], subject=subject)
            for op in map(_fields, entry.ops)
            for subject in _subjects(op)
        )
    except UNREADABLE as error:
        raise damaged(stored.number, store, problem_of(error)) from error
    return LogEntry(
        number=stored.number,
        at=stored.at,
        serial=entry.serial,
        who=entry.writer.who,
        host=entry.writer.host,
        operation=entry.writer.operation,
        tool_version=entry.writer.tool_version,
        commit=entry.writer.commit,
        changes=changes,
        source=entry.writer.source or ApplySource(),
    )


def _fields(op: Any) -> dict[str, Any]:
    return dict(op)


def _subjects(op: dict[str, Any]) -> Iterator[str]:
    match op["op"]:
        case "lock":
            yield op["lock"]["id"]
        case "unlock":
            yield op["id"]
        case "claim":
            yield str(ProjectHome(repository=op["repository"], folder=op["folder"]))
        case "launched":
            yield _ref(op["attempt"], "number")
        case "begin" | "made" | "abandon":
            intent = op["intent"]
            is_run = intent["attempt_record"] is not None
            yield _ref(intent, "attempt") if is_run else intent["address"]
        case "record_resource":
            gone = " (gone)" if op["resource"]["gone"] else ""
            yield f"{op['resource']['address']}{gone}"
        case "record_packages":
            yield from (item["digest"] for item in op["lists"])
        case "record_attempts":
            yield from (f"{_ref(item, 'number')} {item['state']}" for item in op["attempts"])
        case "plan_applied":
            yield op["plan_id"]
        case "move":
            yield f"{op['source']} to {op['destination']}"
        case "replace":
            yield f"{len(op['resources'])} resources and {len(op['attempts'])} attempts"
        case "remove":
            yield op["address"]
        case other:
            yield str(other)  # of a newer sgpu


def _ref(cells: dict[str, Any], number: str) -> str:
    return str(AttemptRef(Address.parse(cells["address"]), cells[number]))
