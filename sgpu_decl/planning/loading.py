"""A saved plan back from its text: strict, since apply carries it out without deciding again."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import NoReturn, TypeVar

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.jsonable import Json, canonical, digest
from sgpu_decl.model.plan import (
    FORMAT_VERSION,
    Action,
    Change,
    Check,
    CodeChange,
    Effect,
    EnvironmentChange,
    Estimate,
    FieldChange,
    Launch,
    PackageChange,
    Plan,
    Prior,
    Reason,
    Summary,
)

__all__ = ["CHECKSUM", "saved_from_json"]

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)

_AGAIN = "make it again with `sgpu plan --out FILE`"


def saved_from_json(
    text: str, file: str | None = None
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Read a saved plan; `file` names it in diagnostics. Never raises for a bad one."""
    about = f"`{file}`" if file else "the plan file"
    try:
        value = json.loads(text, parse_constant=_constant)
        checksum = value.pop(CHECKSUM, None) if isinstance(value, dict) else None
        plan = _plan(_Reader(value, ""))
        # What is shown of a plan is what it launches: neither was edited since it was saved.
        if checksum != digest(canonical(value)):
            raise _Refused("was changed after it was saved", code="plan_edited")
    except json.JSONDecodeError as error:
        return None, (_not_json(text, about, file, error),)
    except RecursionError:
        return None, (_refusal("bad_plan", f"{about} is nested too deeply for a plan"),)
    except _Refused as refused:
        return None, (_refusal(refused.code, f"{about} {refused.why}", refused.hint),)
    except ValueError:
        return None, (_refusal("bad_plan", f"{about} holds a number that no plan has"),)
    return plan, ()


CHECKSUM = "checksum"
"""The digest of all the rest of a saved plan."""


class _Refused(Exception):
    def __init__(self, why: str, *, code: str = "bad_plan", hint: str = _AGAIN) -> None:
        super().__init__(why)
        self.why = why
        self.code = code
        self.hint = hint


def _refusal(code: str, summary: str, hint: str = _AGAIN) -> Diagnostic:
    return Diagnostic(code=code, severity=Severity.ERROR, summary=summary, hint=hint)


def _not_json(text: str, about: str, file: str | None, error: json.JSONDecodeError) -> Diagnostic:
    place = Place(file, error.lineno, error.colno) if file else None
    if not text.strip():
        return _refusal("bad_plan", f"{about} is empty")
    # What was cut off fails at its very end, or in a text that never closes.
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        summary = f"{about} is cut off before its end"
        return replace(_refusal("truncated_plan", summary), place=place)
    return replace(_refusal("bad_plan", f"{about} is not JSON"), place=place)


def _constant(name: str) -> NoReturn:
    raise _Refused(f"holds `{name}`, which is not JSON")


class _Reader:
    """One JSON object and where it is, so that every refusal names its place."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise _Refused(f"is not a plan: {where or 'the file'} is not an object")
        self._value = value
        self._where = where
        self._seen: set[str] = set()

    def has(self, key: str) -> bool:
        return key in self._value

    def take(self, key: str) -> object:
        if key not in self._value:
            raise _Refused(f"is not a whole plan: `{self._path(key)}` is missing")
        self._seen.add(key)
        return self._value[key]

    def end(self) -> None:
        unknown = sorted(self._value.keys() - self._seen)
        if unknown:
            raise _Refused(
                f"holds `{self._path(unknown[0])}`, which this version does not know",
                hint="apply it with the version of `sgpu` that made it, or plan again",
            )

    def text(self, key: str) -> str:
        return self._typed(key, str, "a text")

    def text_or_none(self, key: str) -> str | None:
        return None if self.take(key) is None else self.text(key)

    def flag(self, key: str) -> bool:
        return self._typed(key, bool, "true or false")

    def count(self, key: str) -> int:
        value = self._typed(key, int, "a number")
        if isinstance(value, bool) or value < 0:
            self._refuse(key, "a number of 0 or more")
        return value

    def count_or_none(self, key: str) -> int | None:
        return None if self.take(key) is None else self.count(key)

    def amount_or_none(self, key: str) -> float | None:
        value = self.take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(key, "a number or null")
        return float(value)

    def json(self, key: str) -> Json:
        value: Json = self.take(key)  # type: ignore[assignment] # anything json.loads returns
        return value

    def word(self, key: str, kind: type[_E]) -> _E:
        try:
            return kind(self.text(key))
        except ValueError:
            self._refuse(key, "one of " + ", ".join(f"`{word}`" for word in kind))

    def address(self, key: str) -> Address:
        return self._address(self.text(key), key)

    def address_or_none(self, key: str) -> Address | None:
        return None if self.take(key) is None else self.address(key)

    def addresses(self, key: str) -> tuple[Address, ...]:
        return tuple(self._address(text, key) for text in self.texts(key))

    def time(self, key: str) -> datetime:
        try:
            moment = datetime.fromisoformat(self.text(key))
        except ValueError:
            self._refuse(key, "a time such as `2026-01-31T12:00:00Z`")
        if moment.tzinfo is None:
            self._refuse(key, "a time with its zone")
        return moment

    def time_or_none(self, key: str) -> datetime | None:
        return None if self.take(key) is None else self.time(key)

    def texts(self, key: str) -> tuple[str, ...]:
        items = self._typed(key, list, "a list")
        if not all(isinstance(item, str) for item in items):
            self._refuse(key, "a list of texts")
        return tuple(items)

    def counts(self, key: str) -> tuple[int, ...]:
        items = self._typed(key, list, "a list")
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            self._refuse(key, "a list of numbers")
        return tuple(items)

    def one(self, key: str, read: "Callable[[_Reader], _T]") -> _T:
        inner = _Reader(self.take(key), self._path(key))
        value = read(inner)
        inner.end()
        return value

    def one_or_none(self, key: str, read: "Callable[[_Reader], _T]") -> _T | None:
        return None if self.take(key) is None else self.one(key, read)

    def many(self, key: str, read: "Callable[[_Reader], _T]") -> tuple[_T, ...]:
        found = []
        for index, item in enumerate(self._typed(key, list, "a list")):
            inner = _Reader(item, f"{self._path(key)}[{index}]")
            found.append(read(inner))
            inner.end()
        return tuple(found)

    def _typed(self, key: str, kind: type[_T], what: str) -> _T:
        value = self.take(key)
        if not isinstance(value, kind):
            self._refuse(key, what)
        return value

    def _address(self, text: str, key: str) -> Address:
        try:
            return Address.parse(text)
        except ValueError:
            self._refuse(key, "an address such as `run.train`")

    def _path(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def _refuse(self, key: str, what: str) -> NoReturn:
        raise _Refused(f"is not a plan: `{self._path(key)}` is not {what}")


def _plan(reader: _Reader) -> Plan:
    if not reader.has("format_version"):
        raise _Refused("is not a plan: it has no `format_version`")
    version = reader.take("format_version")
    if version != FORMAT_VERSION:
        raise _Refused(
            f"has the plan format `{version}`; this version of `sgpu` reads `{FORMAT_VERSION}`",
            code="plan_format",
            hint="apply it with the version of `sgpu` that made it, or plan again",
        )
    if reader.has("changes") and not reader.has("project"):
        raise _Refused("is the output of `sgpu plan -o json`, which lacks what apply needs")
    plan = Plan(
        tool_version=reader.text("tool_version"),
        target=reader.text_or_none("target"),
        project=reader.text("project"),
        destroy=reader.flag("destroy"),
        lineage=reader.text("lineage"),
        serial=reader.count("serial"),
        created_at=reader.time("created_at"),
        config_digest=reader.text("config_digest"),
        complete=reader.flag("complete"),
        applyable=reader.flag("applyable"),
        changes=reader.many("changes", _change),
        checks=reader.many("checks", _check),
        estimate=reader.one("estimate", _estimate),
        summary=reader.one("summary", _summary),
        package_lists=tuple(map(PackageList.from_text, reader.texts("package_lists"))),
    )
    reader.end()
    return plan


def _change(reader: _Reader) -> Change:
    nulls_before, nulls_after = reader.one("nulls", _nulls)
    fields = reader.many("fields", _field)
    drifted = frozenset(reader.texts("drifted"))
    return Change(
        address=reader.address("address"),
        kind=reader.word("kind", Kind),
        backend=reader.text("backend"),
        action=reader.word("action", Action),
        reason=reader.word("reason", Reason),
        destructive=reader.flag("destructive"),
        depends_on=reader.addresses("depends_on"),
        attempt=reader.count_or_none("attempt"),
        prior=reader.one_or_none("prior", _prior),
        fields=tuple(
            replace(
                field,
                added=field.before is None and field.path not in nulls_before,
                removed=field.after is None and field.path not in nulls_after,
                drifted=field.path in drifted,
            )
            for field in fields
        ),
        unchanged=reader.count("unchanged"),
        code=reader.one_or_none("code", _code),
        environment=reader.one_or_none("environment", _environment),
        launch=reader.one_or_none("launch", _launch),
    )


def _prior(reader: _Reader) -> Prior:
    return Prior(
        attempt=reader.count("attempt"),
        state=reader.word("state", AttemptState),
        ended_at=reader.time_or_none("ended_at"),
    )


def _nulls(reader: _Reader) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(reader.texts("before")), frozenset(reader.texts("after"))


def _field(reader: _Reader) -> FieldChange:
    return FieldChange(
        path=reader.text("path"),
        before=reader.json("before"),
        after=reader.json("after"),
        effect=reader.word("effect", Effect),
        origin=reader.one_or_none("origin", _place),
    )


def _place(reader: _Reader) -> Place:
    return Place(reader.text("file"), reader.count("line"), reader.count("column"))


def _code(reader: _Reader) -> CodeChange:
    return CodeChange(
        digest=reader.text("digest"),
        files=reader.count("files"),
        bytes=reader.count("bytes"),
        changed=reader.texts("changed"),
    )


def _environment(reader: _Reader) -> EnvironmentChange:
    added = reader.many(
        "added", lambda r: PackageChange(name=r.text("name"), before=None, after=r.text("version"))
    )
    removed = reader.many(
        "removed",
        lambda r: PackageChange(name=r.text("name"), before=r.text("version"), after=None),
    )
    changed = reader.many(
        "changed",
        lambda r: PackageChange(
            name=r.text("name"), before=r.text("before"), after=r.text("after")
        ),
    )
    return EnvironmentChange(
        digest=reader.text_or_none("digest"),
        packages=tuple(sorted((*added, *removed, *changed), key=lambda item: item.name)),
        bytes=reader.count_or_none("bytes"),
        bytes_to_stage=reader.count_or_none("bytes_to_stage"),
    )


def _launch(reader: _Reader) -> Launch:
    return Launch(
        spec=reader.text("spec"),
        owner=reader.text("owner"),
        fingerprint=reader.text("fingerprint"),
        token=reader.text_or_none("token"),
        code_digest=reader.text_or_none("code_digest"),
        environment_digest=reader.text_or_none("environment_digest"),
        packages_digest=reader.text_or_none("packages_digest"),
        pool=reader.text_or_none("pool"),
        stop=reader.counts("stop"),
        wait_for=reader.counts("wait_for"),
    )


def _check(reader: _Reader) -> Check:
    return Check(
        id=reader.text("id"),
        severity=reader.word("severity", Severity),
        address=reader.address_or_none("address"),
        summary=reader.text("summary"),
        hint=reader.text_or_none("hint"),
        place=reader.one_or_none("place", _place),
    )


def _estimate(reader: _Reader) -> Estimate:
    return Estimate(
        gpu_hours_expected=reader.amount_or_none("gpu_hours_expected"),
        gpu_hours_worst=reader.amount_or_none("gpu_hours_worst"),
        cost_expected=reader.amount_or_none("cost_expected"),
        cost_worst=reader.amount_or_none("cost_worst"),
        currency=reader.text_or_none("currency"),
        price_source=reader.text_or_none("price_source"),
    )


def _summary(reader: _Reader) -> Summary:
    return Summary(**{str(action): reader.count(str(action)) for action in Action})
