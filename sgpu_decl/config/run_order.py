"""Checks of the order of a project's runs: `after`, and `${run.NAME.output}`."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field

from sgpu_decl.config.run_reader import DeclaredRun
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Related
from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import NAME
from sgpu_decl.model.run_outputs import pins, references, texts_in
from sgpu_decl.model.target import BASE
from sgpu_decl.text.near_references import has_near_references

_READERS = ("args", "parameters", "command", "env.variables")
"""The fields whose values a program reads."""
_LIKE_OUTPUT = re.compile(rf"(\$\{{run\.({NAME})(?![A-Za-z0-9_-])[^{{}}]{{0,200}}\}}?)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutRuns:
    """The runs that a target leaves out, by their names, with the places of these."""

    target: str = BASE
    places: Mapping[str, Place] = field(default_factory=dict)

    def refused(self, path: str, name: str, place: Place | None) -> Diagnostic:
        """The finding about a field that names one of them."""
        return Diagnostic(
            code="run_left_out",
            summary=f"`{path}` names `{name}`, which the target `{self.target}` leaves out",
            place=place,
            hint="leave this one out there, too, or write another value for that target",
            related=(Related(place=self.places[name], note=f"`{name}` is declared here"),),
        )


def order_findings(
    runs: Sequence[DeclaredRun],
    names: Collection[str],
    places: Mapping[str, Place],
    left_out: LeftOutRuns | None = None,
) -> Iterator[Diagnostic]:
    """Check the order of runs.

    Args:
        runs: those that are valid, the cells of a matrix one by one.
        names: all that the file declares.
        places: where each run is named.
        left_out: those of the file that its target leaves out.
    """
    by_name: dict[str, DeclaredRun] = {}
    for run in runs:
        by_name.setdefault(run.config.name, run)
    matrices = {name for name, run in by_name.items() if run.key}
    new_names = {
        run.config.renamed_from: name
        for name, run in by_name.items()
        if run.config.renamed_from is not None
    }
    for run in runs:
        yield from _unknown(run, names, new_names, left_out or LeftOutRuns())
        if "${run." in run.spec.text:
            yield from _bad_references(run, matrices)
            yield from _malformed(run, names)
    yield from cycles(_upstreams(runs), places, noun="runs")


def _upstreams(runs: Sequence[DeclaredRun]) -> dict[str, dict[str, Place | None]]:
    """What each run comes after, and where that is written; the cells of a matrix may differ."""
    upstreams_of: dict[str, dict[str, Place | None]] = {}
    for run in runs:
        upstreams = upstreams_of.setdefault(run.config.name, {})
        for at, name in enumerate(run.config.after):
            if name not in upstreams:
                upstreams[name] = _place(run, f"after.{at}")
    return upstreams_of


def _unknown(
    run: DeclaredRun,
    names: Collection[str],
    new_names: Mapping[str, str],
    left_out: LeftOutRuns,
) -> Iterator[Diagnostic]:
    for at, name in enumerate(run.config.after):
        if name in left_out.places:
            yield left_out.refused("after", name, _place(run, f"after.{at}"))
        elif name not in names:
            others = [other for other in names if other != run.config.name]
            near = new_names.get(name) or nearest(name, others)
            yield Diagnostic(
                code="unknown_run",
                summary=f"`after` names no run: `{name[:80]}`",
                place=_place(run, f"after.{at}"),
                hint=f"did you mean `{near}`?"
                if near
                else "it is a key under `runs` of a project file",
            )


def _bad_references(run: DeclaredRun, matrices: Collection[str]) -> Iterator[Diagnostic]:
    for path, text in texts_in(run.spec.fields):
        for name in pins(text):
            yield _bad(run, path, f"`{text[:80]}` names an attempt", _write(name))
        for name in sorted(references(text)):
            reference = f"`${{run.{name[:80]}.output}}`"
            if not _is_read(path):
                yield _bad(
                    run,
                    path,
                    f"{reference} is not filled in here",
                    "write it in " + ", ".join(f"`{field}`" for field in _READERS),
                )
            elif name not in run.config.after:
                yield _bad(
                    run,
                    path,
                    f"{reference} needs the output of a run that `after` does not name",
                    f"add `after: [{', '.join((*run.config.after, name))}]`",
                )
            elif name in matrices:
                yield _bad(
                    run,
                    path,
                    f"{reference} is not one folder: `{name}` has a matrix",
                    "declare the combination whose output is read as a run of its own",
                )


def _malformed(run: DeclaredRun, names: Collection[str]) -> Iterator[Diagnostic]:
    """What begins like the output of a run of the project and is none: `${run.train.output/w.pt}`.
    Other programs have such references too, so no other name is taken for one of ours. Text for a
    shell is checked before (`text/near_references.py`)."""
    for path, text in texts_in(run.spec.fields):
        if path == "command" or not _is_read(path):
            continue
        told = has_near_references(text)
        for written, name in _LIKE_OUTPUT.findall(text):
            if name in names and not (told or references(written) or pins(written)):
                yield _bad(
                    run,
                    path,
                    f"`{written[:80]}` is not the output of a run, so it is not filled in",
                    f"write `${{run.{name}.output}}` for the folder, and a path behind the brace",
                )


def _is_read(path: str) -> bool:
    return any(path == field or path.startswith(f"{field}.") for field in _READERS)


def _bad(run: DeclaredRun, path: str, summary: str, hint: str) -> Diagnostic:
    return Diagnostic(code="bad_output", summary=summary, place=_place(run, path), hint=hint)


def _write(name: str) -> str:
    return f"write `${{run.{name}.output}}`: the plan says which attempt that is"


def cycles(
    upstreams: Mapping[str, Mapping[str, Place | None]], places: Mapping[str, Place], *, noun: str
) -> Iterator[Diagnostic]:
    """One finding for each cycle, with its path.

    Args:
        upstreams: what each comes after, and where that is written.
        places: where each is named.
        noun: what they are, `runs` or `tasks`.
    """
    done: set[str] = set()
    for start in upstreams:
        path: list[str] = []
        branches = [iter((start,))]
        while branches:
            name = next(branches[-1], None)
            if name is None:
                branches.pop()
                if path:
                    done.add(path.pop())
            elif name in path:
                yield _cycle(upstreams, path[path.index(name) :], places, noun)
            elif name not in done and name in upstreams:
                path.append(name)
                branches.append(iter(upstreams[name]))


def _cycle(
    upstreams: Mapping[str, Mapping[str, Place | None]],
    names: Sequence[str],
    places: Mapping[str, Place],
    noun: str,
) -> Diagnostic:
    first = min(range(len(names)), key=lambda at: places[names[at]])
    ordered = [*names[first:], *names[:first]]
    words = " → ".join(f"`{name}`" for name in (*ordered, ordered[0]))
    steps = list(zip(ordered, [*ordered[1:], ordered[0]], strict=True))
    entries = [upstreams[name][upstream] for name, upstream in steps]
    return Diagnostic(
        code="cyclic_tasks" if noun == "tasks" else "cyclic_runs",
        summary=f"each of these {noun} waits for the next one, so none can start: {words}"
        if len(ordered) > 1
        else f"`{ordered[0]}` comes after itself",
        place=entries[0],
        hint="remove one of the names from `after`",
        related=tuple(
            Related(place=place, note=f"`{name}` comes after `{upstream}`")
            for (name, upstream), place in list(zip(steps, entries, strict=True))[1:]
            if place is not None
        ),
    )


def _place(run: DeclaredRun, path: str) -> Place | None:
    """Where a value was written, or the block around it."""
    while path:
        if (place := run.places.get(path)) is not None:
            return place
        path = path.rpartition(".")[0]
    return None
