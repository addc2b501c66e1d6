"""Settings of jobs that a comparison leaves out: those that the platform adds by itself, and those
that the file leaves to others."""

import itertools
from collections.abc import Collection, Mapping

from sgpu_decl.model.job import PERMISSIONS, JobRules
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.planner.field_changes import covered, join, leaves
from sgpu_decl.planner.jobs.job_policy import is_ours


def without_defaults(document: Spec, rules: JobRules, *specs: Spec) -> Spec:
    """Return what is seen, less what the workspace adds by itself where none of the specs that were
    asked for says anything."""
    named = {path for spec in specs for path, _ in leaves(spec.fields)}
    kept = _kept_below(document.fields, "", named, rules)
    # Who may see a job is left alone where the file says nothing of it.
    if not any(path == PERMISSIONS or path.startswith(PERMISSIONS + ".") for path in named):
        kept.pop(PERMISSIONS, None)
    return Spec.of(kept)


def _kept_below(
    value: Mapping[str, Json], parent: str, named: Collection[str], rules: JobRules
) -> dict[str, Json]:
    kept: dict[str, Json] = {}
    for key, below in value.items():
        path = join(parent, key)
        said = path in named or any(one.startswith(f"{path}.") for one in named)
        if not said and rules.is_default(path, below):
            continue
        if isinstance(below, Mapping) and below:
            inner = _kept_below(below, path, named, rules)
            if inner or path in named:
                kept[key] = inner
        else:
            kept[key] = below
    return kept


def ignored_by(spec: Mapping[str, Json], name: str, rules: JobRules) -> list[str]:
    """The paths of settings that the spec of a job leaves to others.

    Args:
        name: what the job is called in the file.
    """
    listed = as_mapping(spec.get("lifecycle")).get("ignore_changes")
    named = map(str, listed) if isinstance(listed, list) else ()
    paths = itertools.chain.from_iterable(rules.setting_paths(path, name) for path in named)
    return [path for path in paths if not is_ours(path)]


def taking(
    mine: Mapping[str, Json], theirs: Mapping[str, Json], ignored: Collection[str], parent: str = ""
) -> dict[str, Json]:
    """What is mine, with what is theirs at the paths that are ignored."""
    result: dict[str, Json] = {}
    for key in mine.keys() | theirs.keys():
        path = join(parent, key)
        if covered(path, ignored):
            result |= {key: theirs[key]} if key in theirs else {}
        elif any(item.startswith(f"{path}.") for item in ignored):
            below = taking(as_mapping(mine.get(key)), as_mapping(theirs.get(key)), ignored, path)
            result |= {key: below} if below or key in mine else {}
        elif key in mine:
            result[key] = mine[key]
    return result


def as_mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
