"""Two attempts side by side: their configs, code, packages, results and metrics."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from sgpu_decl.code.code_diff import code_diff
from sgpu_decl.environments.package_lists.package_diff import difference
from sgpu_decl.errors import NotFound
from sgpu_decl.model.attempt_diff import AttemptDiff, FileDiff, ValueDiff
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import PackageChange
from sgpu_decl.planner.field_changes import compare
from sgpu_decl.runs.environment_lookup import environment_named

if TYPE_CHECKING:
    from sgpu_decl.model.launch import LaunchInputs
    from sgpu_decl.model.run_table import RunTable
    from sgpu_decl.planning.project import Project


def compare_attempts(
    project: "Project",
    table: "RunTable",
    inputs: "Sequence[LaunchInputs]",
) -> AttemptDiff:
    """Compare the two attempts of a table.

    Args:
        inputs: what decided the launch of each.
    """
    one, two = table.rows
    names = [str(row.view.ref) for row in table.rows]
    files, code_gaps = _code(project, names, inputs)
    packages, package_gaps = _packages(project, names, inputs)
    unread = [(row, row.unread.reason) for row in table.rows if row.unread is not None]
    gaps = {
        "results": [why for _, why in unread],
        "code": code_gaps,
        "packages": package_gaps,
        "metrics": (*table.problems, *(why for row, why in unread if not row.metrics)),
    }
    metrics = _values(one.metrics, two.metrics)
    return AttemptDiff(
        before=one.view,
        after=two.view,
        fields=compare(*(item.spec for item in inputs)),
        files=files,
        packages=packages,
        results=() if unread else _values(one.returned, two.returned),
        metrics=tuple(
            item for item in metrics if not gaps["metrics"] or None not in (item.before, item.after)
        ),
        gaps=tuple(dict.fromkeys(chain.from_iterable(gaps.values()))),
        unknown=frozenset(part for part, reasons in gaps.items() if reasons),
    )


def _code(
    project: "Project", names: Sequence[str], inputs: "Sequence[LaunchInputs]"
) -> tuple[tuple[FileDiff, ...], Sequence[str]]:
    digests = [item.code_digest for item in inputs if item.code_digest is not None]
    if len(digests) < len(inputs):  # calls on this machine import the files as they are
        return (), [
            f"the code of `{name}` was not recorded"
            for name, item in zip(names, inputs, strict=True)
            if item.code_digest is None
        ]
    if digests[0] == digests[1]:
        return (), ()

    sides = [project.store.manifest(digest) for digest in digests]
    before, after = sides
    if before is None or after is None:
        return (), [
            f"the code of `{name}` is not in the store of this machine any more: "
            "`sgpu gc` deletes code that no run needs"
            for name, side in zip(names, sides, strict=True)
            if side is None
        ]
    return tuple(code_diff(project.store, before, after)), ()


def _packages(
    project: "Project", names: Sequence[str], inputs: "Sequence[LaunchInputs]"
) -> tuple[tuple[PackageChange, ...], Sequence[str]]:
    if len({(item.environment_digest, item.packages_digest) for item in inputs}) == 1:
        return (), ()

    try:
        before, after = (environment_named(name, project=project) for name in names)
    except NotFound as error:
        return (), [error.message]
    return difference(before, after).packages, ()


def _values(before: Mapping[str, Json], after: Mapping[str, Json]) -> tuple[ValueDiff, ...]:
    """Those that differ, in the order in which they were returned."""
    return tuple(
        ValueDiff(name=name, before=before.get(name), after=after.get(name))
        for name in dict.fromkeys((*before, *after))
        if _text(before.get(name)) != _text(after.get(name))
    )


def _text(value: Json) -> str:
    """A NaN is equal to another one, and 1 is not `true`."""
    return json.dumps(value, sort_keys=True)
