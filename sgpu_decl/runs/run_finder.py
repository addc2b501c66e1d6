"""Finding attempts: by the names of runs, by files, and by whether they are active."""

import shlex
from collections.abc import Collection, Iterable, Mapping

from sgpu_decl.errors import NotFound
from sgpu_decl.model.address import Address, Kind, cell_order
from sgpu_decl.model.argument_checks import checked_calls
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.selectors import (
    is_glob,
    is_whole_name,
    match_addresses,
    names_any,
    split_attempt,
)
from sgpu_decl.model.state import Attempt, Resource
from sgpu_decl.model.target import BASE
from sgpu_decl.runs.attempt_views import AttemptViews
from sgpu_decl.storing.state_store import StateStore


@checked_calls
class RunFinder(AttemptViews):
    """The attempts that words of a user stand for."""

    def find(self, *texts: str) -> tuple[AttemptRef, ...]:
        """The attempts that names, addresses, `train#8` or globs stand for, the latest of each run,
        in the order of the texts.

        Raises:
            NotFound: one of them matches nothing.
        """
        return tuple(dict.fromkeys(ref for text in texts for ref in self._find(text)))

    def _find(self, text: str) -> tuple[AttemptRef, ...]:
        """Runs that are gone are found by their names, and among others not at all."""
        name, number = split_attempt(text)
        state = self._believed()
        resources = {
            a: resource for a, resource in state.resources.items() if resource.last is not None
        }
        jobs = {
            a for a, resource in state.resources.items() if a.kind is Kind.JOB and not resource.gone
        }
        if names_any(name, jobs) and not names_any(name, resources):
            raise NotFound(
                f"`{name}` is a job: only its platform launches it",
                hint=f"`sgpu show {shlex.quote(name)}` says how its last launch went, and where "
                "its logs are",
            )
        if not resources:
            hint = other_targets_hint(self._project.states, self._project.target)
            raise NotFound(
                f"no run matches `{name}`", hint=hint or "no run was launched from here yet"
            )
        refs = []
        active = {item.ref.address for item in state.active}
        gone = {a for a, resource in resources.items() if resource.gone and a not in active}
        named = match_addresses([name], resources)
        if number is not None:
            named = _with_attempt(name, number, named, resources)
        named = _not_gone(name, named, gone)
        for address in sorted(named, key=lambda one: _order(resources[one].last, one)):
            last = resources[address].last
            if last is None:
                continue
            if number is not None and not 1 <= number <= last.ref.number:
                raise NotFound(
                    f"`{address.label}` has no attempt {number}",
                    hint=f"its latest is `{last.ref}`",
                )
            refs.append(AttemptRef(address, number) if number is not None else last.ref)
        return tuple(refs)

    def latest(self) -> tuple[AttemptRef, int]:
        """The attempt that was launched last, and how many other runs there are. Runs that are gone
        do not count.

        Raises:
            NotFound: nothing was launched here, or all of it is gone.
        """
        resources = self._believed().resources.values()
        live = [item.last for item in resources if item.last is not None and not item.gone]
        if not live:
            hint = other_targets_hint(self._project.states, self._project.target)
            raise NotFound("there is no run here", hint=hint or "`sgpu apply` launches runs")
        last = max(live, key=lambda attempt: (attempt.created_at, attempt.ref))
        return last.ref, len(live) - 1

    def names_of_file(self) -> tuple[str, ...]:
        """The names of the runs that the file of this project declares, as far as they were
        launched and are not gone.

        Raises:
            NotFound: there are none.
            InvalidInput: there are none, and the file is no run or project file.
        """
        project = self._project
        resources = self._believed().resources.values()
        names = {
            item.address.name
            for item in resources
            if item.last is not None and not item.gone and item.owner == project.owner
        }
        if not names:
            from sgpu_decl.planning.project_file import text_of  # with YAML
            from sgpu_decl.planning.project_text import invalid_file

            text = text_of(project)
            files, findings = text.parsed
            if files is None:
                raise invalid_file(text.shown, findings)
            raise NotFound(
                f"no run of `{project.shown}` was launched",
                hint="`sgpu apply` launches its runs",
            )
        return tuple(sorted(names))

    def active(self) -> tuple[AttemptRef, ...]:
        """The attempts that are active."""
        refs = [item.ref for item in self._believed().active]
        return tuple(
            sorted(ref for ref, status in self._statuses(refs).items() if status.state.active)
        )

    def find_one(self, *texts: str) -> AttemptRef:
        """As `find`, for calls that are about one run.

        Raises:
            NotFound: it matches nothing, or several runs.
        """
        refs = self.find(*texts)
        if len(refs) > 1:
            named = " and ".join(f"`{text}`" for text in texts)
            raise NotFound(
                f"{named} {'names' if len(texts) == 1 else 'name'} {len(refs)} runs",
                hint=f"name one of them, such as `{refs[0]}`",
                code="ambiguous",
            )
        return refs[0]

    def status(self, ref: AttemptRef | str) -> AttemptView:
        return super().status(self._ref(ref))

    def _ref(self, named: AttemptRef | str) -> AttemptRef:
        return self.find_one(named) if isinstance(named, str) else named

    def find_active(self, *texts: str) -> tuple[AttemptRef, ...]:
        """As `find`, with every other attempt of the named runs that is active: `on_active:
        parallel` and `queue` leave several.

        Raises:
            NotFound: one of them matches nothing.
        """
        named = {
            ref.address
            for text in texts
            if split_attempt(text)[1] is None
            for ref in self._find(text)
        }
        others = [item.ref for item in self._believed().active if item.ref.address in named]
        active = (ref for ref, status in self._statuses(others).items() if status.state.active)
        return self._in_order({*self.find(*texts), *active})

    def active_calls(self, backend: str) -> int:
        """How many calls of functions are active on a backend, as far as this project knows."""
        active = [item for item in self._believed().active if item.backend == backend]
        calls = [attempt.ref for attempt in active if attempt.provenance.function is not None]
        return sum(status.state.active for status in self._statuses(calls).values())

    def current(self) -> tuple[AttemptRef, ...]:
        """The latest attempt of every run that is not gone, and older ones that are active."""
        state = self._believed()
        latest = {
            resource.last.ref
            for resource in state.resources.values()
            if resource.last and not resource.gone
        }
        older = [item.ref for item in state.active if item.ref not in latest]
        views = self._statuses(older, tolerant=True)
        return self._in_order({*latest, *(ref for ref in older if views[ref].state.active)})

    def _in_order(self, refs: Iterable[AttemptRef]) -> tuple[AttemptRef, ...]:
        """By address, the cells of a matrix as the file has them."""
        resources = self._believed().resources

        def order(ref: AttemptRef) -> tuple[object, ...]:
            resource = resources.get(ref.address)
            return _order(resource.last if resource else None, ref.address), ref.number

        return tuple(sorted(refs, key=order))


def other_targets_hint(states: StateStore, target: str | None) -> str | None:
    """A hint for a target without runs: the other targets that something was applied to."""
    others = [name for name in states.targets() if name != (target or BASE)]
    options = [f"with `-t {name}`" for name in others]
    return f"something was applied {' and '.join(options)}: look there" if options else None


def _with_attempt(
    name: str, number: int, named: frozenset[Address], resources: Mapping[Address, Resource]
) -> frozenset[Address]:
    """Those that have an attempt of that number: the address itself, if that has one, rather than
    the cells of a matrix of its name. All of them where none has it."""
    having = frozenset(
        address
        for address in named
        if (last := resources[address].last) is not None and 1 <= number <= last.ref.number
    )
    exact = frozenset(address for address in having if is_whole_name(name, address))
    return exact or having or named


def _order(last: Attempt | None, address: Address) -> tuple[str, tuple[int, ...], str]:
    return cell_order(address, last.inputs.cell if last is not None else None)


def _not_gone(
    pattern: str, matches: frozenset[Address], gone: Collection[Address]
) -> frozenset[Address]:
    """Those of the addresses that a pattern stands for which are not gone; all of them, where all
    are gone and it is their name.

    Raises:
        NotFound: it is a glob, and nothing but what is gone matches.
    """
    live = matches.difference(gone)
    if not live and is_glob(pattern) and not any(is_whole_name(pattern, one) for one in matches):
        raise NotFound(
            f"no run matches `{pattern}` but destroyed ones",
            hint=f"one of those is found by its name, such as `{min(matches).label}`",
        )
    return live or matches
