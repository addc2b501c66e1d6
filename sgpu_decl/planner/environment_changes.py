"""What becomes of a declared environment, and which packages differ from what ran last."""

from collections.abc import Iterable, Mapping
from typing import cast

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.desired import DesiredRun, Interpreter
from sgpu_decl.model.environment import DesiredEnvironment, Package, PackageList
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.plan import (
    Action,
    Change,
    EnvironmentChange,
    PackageChange,
    PlannedLaunch,
    Reason,
)
from sgpu_decl.model.state import Attempt, Resource, State


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedPackage:
    name: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSides:
    """Changes as JSON has them: what was added, what was removed, what was changed."""

    added: tuple[_NamedPackage, ...]
    removed: tuple[_NamedPackage, ...]
    changed: tuple[PackageChange, ...]

    @classmethod
    def of(cls, packages: Iterable[PackageChange]) -> "PackageSides":
        added, removed, changed = [], [], []
        for package in packages:
            if package.before is None:
                added.append(_NamedPackage(name=package.name, version=str(package.after)))
            elif package.after is None:
                removed.append(_NamedPackage(name=package.name, version=package.before))
            else:
                changed.append(package)
        return cls(added=tuple(added), removed=tuple(removed), changed=tuple(changed))

    @property
    def changes(self) -> tuple[PackageChange, ...]:
        """By name, as `compare_packages` gives them."""
        added = (PackageChange(name=one.name, before=None, after=one.version) for one in self.added)
        gone = (
            PackageChange(name=one.name, before=one.version, after=None) for one in self.removed
        )
        return tuple(sorted((*added, *gone, *self.changed), key=lambda change: change.name))

    def to_json(self) -> dict[str, Json]:
        return cast("dict[str, Json]", to_json(self))


def compare_packages(
    before: Iterable[Package], after: Iterable[Package]
) -> tuple[PackageChange, ...]:
    """Return what was added, removed or changed, by name."""
    old = {item.name: item.version for item in before}
    new = {item.name: item.version for item in after}
    return tuple(
        PackageChange(name=name, before=old.get(name), after=new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )


_SHOWN = 5

Lists = Mapping[str, PackageList]


def environment_change(
    desired: DesiredEnvironment, resource: Resource | None, known: Lists
) -> Change:
    """Return the change of one declared environment: compared with what was applied last."""
    before = None if resource is None or resource.gone else resource.spec.fields
    if before is None:
        action, reason = Action.CREATE, Reason.FIRST_RUN
    elif before.get("digest") != desired.digest:
        action, reason = Action.UPDATE, Reason.ENVIRONMENT_CHANGED
    else:
        action, reason = Action.NO_OP, Reason.UP_TO_DATE
    return Change(
        address=desired.address,
        kind=desired.address.kind,
        backend=desired.backend,
        action=action,
        reason=reason,
        environment=EnvironmentChange(
            digest=desired.digest,
            packages=difference(_list(before, known), desired.packages),
            bytes=desired.bytes,
            bytes_to_stage=desired.bytes_to_stage,
        ),
        launch=PlannedLaunch(
            owner=desired.owner,
            inputs=LaunchInputs(
                spec=desired.spec,
                fingerprint=desired.digest,
                environment_digest=desired.digest,
                packages_digest=desired.packages.digest,
            ),
        ),
    )


def of_run(desired: DesiredRun, last: Attempt | None, known: Lists) -> EnvironmentChange | None:
    """Return what a run's declared environment changes for the run: against its own last attempt.
    Of a first run nothing is listed; the change of the environment says it all."""
    environment = desired.environment
    if environment is None:
        return None
    before = known.get(last.inputs.packages_digest or "") if last else None
    return EnvironmentChange(
        digest=environment.digest,
        packages=difference(before, environment.packages) if before else (),
        bytes=environment.bytes,
        bytes_to_stage=environment.bytes_to_stage,
    )


def difference(before: PackageList | None, after: PackageList) -> tuple[PackageChange, ...]:
    """Return the packages that were added, removed or changed, by name; all of them are added where
    nothing is known of before."""
    if before is not None and before.digest == after.digest:
        return ()
    return compare_packages(before.packages if before else (), after.packages)


def interpreter_checks(
    runs_and_last: "list[tuple[DesiredRun, Attempt | None]]", state: State
) -> tuple[Diagnostic, ...]:
    """Say which Python the ranks use where no environment is declared, each that is used once, and
    which of its packages changed since the last attempt. It forces nothing."""
    checks: dict[tuple[Interpreter, str | None], Diagnostic] = {}
    for desired, last in runs_and_last:
        used = desired.interpreter
        if used is None:
            continue
        before = last.inputs.packages_digest if last else None
        if (used, before) not in checks:
            checks[used, before] = _interpreter(used, state.package_lists.get(before or ""), last)
    return tuple(checks.values())


def _interpreter(used: Interpreter, before: PackageList | None, last: Attempt | None) -> Diagnostic:
    version = f"Python {used.version}, " if used.version else ""
    summary = f"ranks use {version}`{used.executable}`"
    hint = None
    if used.version is None:
        summary += ", which lies in the project: this plan did not run it"
        hint = "`sgpu plan --trust-project` runs it, and tells its version or why it does not run"
    if before is not None and used.packages is not None and last is not None:
        changed = difference(before, used.packages)
        if changed:
            words = [_words(item) for item in changed[:_SHOWN]]
            more = len(changed) - _SHOWN
            summary += f"; since `{last.ref}`: {', '.join(words)}"
            summary += f" and {more:,} more packages" if more > 0 else ""
            hint = "declare it with `env: {snapshot: true}` to make packages part of the run"
    return Diagnostic(
        code="interpreter", severity=Severity.INFO, address=None, summary=summary, hint=hint
    )


def _words(change: PackageChange) -> str:
    if change.before is None:
        return f"+ {change.name} {change.after}"
    if change.after is None:
        return f"- {change.name} {change.before}"
    return f"~ {change.name} {change.before} -> {change.after}"


def _list(spec: Mapping[str, Json] | None, known: Lists) -> PackageList | None:
    digest = spec.get("packages") if spec else None
    return known.get(digest) if isinstance(digest, str) else None
