"""For which rank the others wait in a collective: a pure function of what is seen of each rank.

Collectives of a group have numbers, and all its ranks enter the same ones in the same order
(https://docs.pytorch.org/docs/stable/distributed.html). So if a rank has entered less of them than
one in which others stand, these wait for it; and if the same number is another call, or one for
tensors of another shape or type, none of them can go on. torch's own analysis of its recorder goes
by the same rules: torch/distributed/flight_recorder/components/utils.py.

Ranks that wait for one that works are information. It is an alarm if that rank neither works nor
moves, or if collectives do not match.
"""

from __future__ import annotations

from sgpu_decl.agent.attempt.stack_groups import rank_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from sgpu_decl.agent.monitor.rank_answers import Collective, Frame, Group, RankAnswer

# Whoever waits in one of these files, and moves no more, waits for other ranks.
_WAITING = (
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/rendezvous.py",
    "/torch/distributed/_functional_collectives.py",
)
_DECORATORS = ("/torch/distributed/c10d_logger.py", "/torch/utils/_contextlib.py")
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "/sgpu_decl/rank/")
# Their input has the same shape in all ranks.
_SAME_SHAPE = frozenset({"all_reduce", "allreduce", "broadcast", "reduce", "reduce_scatter"})
_MOST_PLACES = 4  # that are named
STOPPED = frozenset("Tt")  # states in /proc/PID/stat: proc(5)
DEVICE = "D"


class RankLook:
    """What is seen of a rank.

    Attributes:
        state: of its process, as in proc(5): `T` is stopped; empty if it has ended.
        answer: what it answered last, if it ever did; `now`: whether it did
            lately.
        stood: seconds since it entered or completed a collective, or was elsewhere.
        idle: seconds in which it neither worked nor moved, or since it has ended.
    """

    __slots__ = ("answer", "idle", "node", "now", "rank", "state", "stood")

    def __init__(
        self,
        rank: int,
        *,
        node: int = 0,
        state: str = "S",
        answer: RankAnswer | None = None,
        now: bool = True,
        stood: float = 0.0,
        idle: float = 0.0,
    ) -> None:
        self.rank = rank
        self.node = node
        self.state = state
        self.answer = answer
        self.now = now
        self.stood = stood
        self.idle = idle

    @property
    def stack(self) -> tuple[Frame, ...]:
        return self.answer.stack if self.answer is not None else ()

    @property
    def groups(self) -> Mapping[Group, tuple[Collective, ...]]:
        return (self.answer.groups if self.answer is not None else None) or {}

    @property
    def waits_by_stack(self) -> bool:
        return self.goes_on and bool(self.stack) and self.stack[0][1].endswith(_WAITING)

    @property
    def goes_on(self) -> bool:
        """Whether it answers, and would go on if it could."""
        return self.now and bool(self.state) and self.state not in STOPPED


class CollectiveWait:
    """That ranks wait.

    Attributes:
        kind: `missing`, `order`, `shape`, `ended`, `stopped` or `unfinished`.
        alarm: whether that is a hang.
        ranks: whom the others wait for.
        waiting: who waits, for so many `seconds`.
        summary: all of it in words.
    """

    __slots__ = ("alarm", "kind", "ranks", "seconds", "summary", "waiting")

    def __init__(
        self,
        kind: str,
        summary: str,
        *,
        ranks: Iterable[int],
        waiting: Iterable[int],
        seconds: float,
        alarm: bool,
    ) -> None:
        self.kind = kind
        self.summary = summary
        self.ranks = tuple(sorted(ranks))
        self.waiting = tuple(sorted(waiting))
        self.seconds = seconds
        self.alarm = alarm

    def to_json(self) -> dict[str, Any]:
        """Return it for `monitor.json`; `seconds` are whole."""
        return {**{name: getattr(self, name) for name in self.__slots__},
                "seconds": int(self.seconds)}  # fmt: skip


class _Group:
    """A group in which ranks wait: the `waiters` in the collective `number`, which the ranks in
    `missing` have not entered. `standing` are ranks that have waited for long, in any collective of
    it. `calls` are the collectives of each rank by number."""

    def __init__(self, key: Group, looks: Mapping[int, RankLook], after: float) -> None:
        self.members = key[1]
        self.calls = {
            rank: {one.number: one for one in looks[rank].groups.get(key, ())}
            for rank in self.members
            if rank in looks
        }
        entered = {
            rank: min(number for number, one in calls.items() if one.pending)
            for rank, calls in self.calls.items()
            if looks[rank].goes_on and any(one.pending for one in calls.values())
        }
        self.standing = [rank for rank in entered if looks[rank].stood >= after]
        self.number = min((entered[rank] for rank in self.standing), default=0)
        # Those that came later wait, too.
        self.waiters = [
            rank for rank, number in entered.items() if self.standing and number == self.number
        ]
        self.missing = [
            rank for rank in self.members if max(self.calls.get(rank, ()), default=-1) < self.number
        ]

    def mismatch(self) -> tuple[int, dict[tuple[object, ...], list[int]], str] | None:
        """The first number that is not the same for all ranks that entered it: the ranks by what it
        is for them, and whether that is another `order` or another `shape`. None if no rank waits
        in such a one: others did not keep the ranks from going on."""
        found: list[tuple[int, dict[tuple[object, ...], list[int]], str]] = []
        waits = False
        for number in sorted({number for calls in self.calls.values() for number in calls}):
            entered = {rank: calls[number] for rank, calls in self.calls.items() if number in calls}
            names = _by(entered, lambda one: (one.call,))
            same = {(name,) for name in _SAME_SHAPE}
            shapes = _by(entered, lambda one: (one.types, one.elements))
            types = {one.types for one in entered.values() if one.types}
            if len(names) > 1:
                found.append((number, names, "order"))
            elif len(types) > 1 or (len(shapes) > 1 and names.keys() <= same):
                found.append((number, shapes, "shape"))
            else:
                continue
            waits = waits or any(one.pending for one in entered.values())
        return found[0] if waits else None


def _by(entered: Mapping[int, Collective], key: Any) -> dict[tuple[object, ...], list[int]]:
    found: dict[tuple[object, ...], list[int]] = {}
    for rank, one in entered.items():
        found.setdefault(key(one), []).append(rank)
    return found


def collective_wait(
    looks: Mapping[int, RankLook], after: float, *, code_dir: str = ""
) -> CollectiveWait | None:
    """Return for which ranks others have waited for `after` seconds; None if none do.

    Args:
        code_dir: the folder that files are named in.
    """
    words = _Words(looks, code_dir)
    keys = {key for look in looks.values() for key in look.groups}
    groups = [group for key in sorted(keys) if (group := _Group(key, looks, after)).waiters]
    for group in groups:
        wait = _mismatch(group, looks, words)
        if wait is not None:
            return wait
    held = {rank for group in groups for rank in group.standing}
    held |= {one.rank for one in looks.values() if one.waits_by_stack and one.stood >= after}
    for group in groups:
        missing = [rank for rank in group.missing if rank not in held] or [
            # One that waits elsewhere is named if that is no collective of a group.
            rank for rank in group.missing if not any(rank in one.standing for one in groups)
        ]  # fmt: skip
        if missing:
            return _missing(group, missing, looks, words, after)
    if not held:
        return None
    if groups and not any(group.missing for group in groups):
        return _unfinished(groups[0], looks, words, after)
    living = [one.rank for one in looks.values() if one.state]
    others = [rank for rank in looks if rank not in held]
    if others and not groups:
        return _not_arrived(sorted(held), others, looks, words, after)
    if len(held) > 1 and all(rank in held for rank in living):
        return _crossed(sorted(held), groups, looks, words, after)
    return None


def _mismatch(group: _Group, looks: Mapping[int, RankLook], words: _Words) -> CollectiveWait | None:
    found = group.mismatch()
    if found is None:
        return None
    number, by, kind = found
    # The most ranks are right, or else those with the first of them.
    usual = max(by, key=lambda key: (len(by[key]), -min(by[key])))
    odd = [rank for key, ranks in by.items() if key != usual for rank in ranks]
    first = min(odd)
    mine, theirs = group.calls[first][number], group.calls[by[usual][0]][number]
    seconds = max(looks[rank].stood for rank in group.waiters)
    # Where it is now is the place of the collective only if it waits there.
    here = words.at(first) if mine.pending else ""
    there = words.at(by[usual][0]) if theirs.pending else ""
    if kind == "order":
        summary = (
            f"{words.name(odd)} called {mine.call} #{number}{here}, but {words.name(by[usual])} "
            f"called {theirs.call} #{number}{there}"
        )
    else:
        unlike = "types" if mine.types != theirs.types else "sizes"
        summary = (
            f"{words.name(odd)} entered {mine.call} #{number}{here} with {getattr(mine, unlike)}, "
            f"but {words.name(by[usual])} with {getattr(theirs, unlike)}{there}"
        )
    summary += f"; they have waited for {span(seconds)}"
    if not here and (where := words.doing(first)):
        summary += f"; rank {first} is {where}"
    return CollectiveWait(
        kind, summary, ranks=odd, waiting=group.waiters, seconds=seconds, alarm=True
    )


def _missing(
    group: _Group,
    missing: Sequence[int],
    looks: Mapping[int, RankLook],
    words: _Words,
    after: float,
) -> CollectiveWait:
    waiters = group.waiters
    call = group.calls[waiters[0]][group.number]
    what = f"{call.call} #{group.number}{words.at(waiters[0])}"
    return _waiting_for(missing, waiters, "entered", what, looks, words, after)


def _not_arrived(
    waiters: Sequence[int],
    others: Sequence[int],
    looks: Mapping[int, RankLook],
    words: _Words,
    after: float,
) -> CollectiveWait:
    what = f"{words.function(waiters[0])}{words.at(waiters[0])}"
    return _waiting_for(others, waiters, "come to", what, looks, words, after)


def _waiting_for(
    missing: Sequence[int],
    waiters: Sequence[int],
    verb: str,
    what: str,
    looks: Mapping[int, RankLook],
    words: _Words,
    after: float,
) -> CollectiveWait:
    seconds = max(looks[rank].stood for rank in waiters)
    kind, alarm = "missing", False
    for rank in missing:
        look = looks.get(rank)
        if look is None or not look.state:
            kind = "ended"  # maybe a moment ago, after the collective
        elif look.state in STOPPED:
            kind, alarm = "stopped", True
        if look is None or look.idle >= after / 2:
            alarm = True
    first = missing[0]
    where = words.doing(first)
    verb_is = "" if where.startswith("has") else "is "
    if not alarm:
        which = "which" if len(missing) == 1 else f"and rank {first}"
        summary = f"{_many(waiters)} for {words.name(missing)}"
        summary += f", {which} {verb_is}{where}" if where else ""
        return CollectiveWait(
            kind, summary, ranks=missing, waiting=waiters, seconds=seconds, alarm=False
        )
    has = "has" if len(missing) == 1 else "have"
    summary = f"{words.name(missing)} {has} not {verb} {what}; {_many(waiters)} there for"
    summary += f" {span(seconds)}"
    if where:
        summary += f"; rank {first} {verb_is}{where}"
    return CollectiveWait(
        kind, summary, ranks=missing, waiting=waiters, seconds=seconds, alarm=True
    )


def _unfinished(
    group: _Group, looks: Mapping[int, RankLook], words: _Words, after: float
) -> CollectiveWait | None:
    """All ranks have entered the same collective, and it does not end."""
    stopped = [rank for rank in group.members if looks[rank].state in STOPPED]
    seconds = max(looks[rank].stood for rank in group.waiters)
    call = group.calls[group.waiters[0]][group.number]
    what = f"{call.call} #{group.number}{words.at(group.waiters[0])}"
    if stopped:
        summary = f"{words.name(stopped)} is {words.doing(stopped[0])}"
        others = [rank for rank in group.waiters if rank not in stopped]
        summary += f"; {_many(others)} for it in {what} for {span(seconds)}"
        return CollectiveWait(
            "stopped", summary, ranks=stopped, waiting=others, seconds=seconds, alarm=True
        )
    summary = f"{_many(group.waiters, 'are')} in {what} for {span(seconds)}, which does not end"
    alarm = all(looks[rank].idle >= after / 2 for rank in group.waiters)
    return CollectiveWait(
        "unfinished", summary, ranks=(), waiting=group.waiters, seconds=seconds, alarm=alarm
    )


def _crossed(
    held: Sequence[int],
    groups: Sequence[_Group],
    looks: Mapping[int, RankLook],
    words: _Words,
    after: float,
) -> CollectiveWait | None:
    """All ranks wait, but not in the same place: each for another one."""
    places: dict[str, list[int]] = {}
    for rank in held:
        group = next((one for one in groups if rank in one.standing), None)
        what = words.function(rank)
        if group is not None:
            number = min(n for n, one in group.calls[rank].items() if one.pending)
            what = f"{group.calls[rank][number].call} #{number} of ranks {group.members}"
        places.setdefault(f"{what}{words.at(rank)}", []).append(rank)
    seconds = max(looks[rank].stood for rank in held)
    named = [f"{words.name(some)} in {what}" for what, some in places.items()][:_MOST_PLACES]
    usual = max(places.values(), key=lambda some: (len(some), -min(some)))
    return CollectiveWait(
        "order",
        f"ranks have waited for each other for {span(seconds)}: {', '.join(named)}",
        ranks=[rank for rank in held if rank not in usual], waiting=held, seconds=seconds,
        alarm=all(looks[rank].idle >= after / 2 for rank in held),
    )  # fmt: skip


class _Words:
    """Ranks and their places in words."""

    def __init__(self, looks: Mapping[int, RankLook], code_dir: str) -> None:
        self._looks = looks
        self._nodes = len({look.node for look in looks.values()}) > 1
        self._code_dir = code_dir.rstrip("/") + "/"

    def name(self, ranks: Sequence[int]) -> str:
        """`rank 5 (node 1)`."""
        look = self._looks.get(ranks[0])
        node = f" (node {look.node})" if look is not None and self._nodes else ""
        return rank_list(ranks) + (node if len(ranks) == 1 else "")

    def _of_user(self, rank: int) -> tuple[str, Frame] | None:
        """The function that a rank is in, as the user's code called it, and the frame of that."""
        look = self._looks.get(rank)
        called = ""
        for frame in look.stack if look is not None else ():
            if frame[1].startswith(self._code_dir) or not any(
                one in frame[1] for one in _LIBRARIES
            ):
                return called or frame[0], frame
            if not frame[1].endswith(_DECORATORS):
                called = frame[0]
        return None

    def function(self, rank: int) -> str:
        found = self._of_user(rank)
        return _short(found[0]) if found is not None else "a call of torch.distributed"

    def at(self, rank: int) -> str:
        """` (train.py:212)`."""
        found = self._of_user(rank)
        if found is None:
            return ""
        file = found[1][1]
        inside = file.startswith(self._code_dir)
        name = file[len(self._code_dir) :] if inside else file.rpartition("/")[2]
        return f" ({name}:{found[1][2]})"

    def doing(self, rank: int) -> str:
        """`in DataLoader.__next__ (data.py:88)`; empty if nothing is known."""
        look = self._looks.get(rank)
        if look is None or not look.state:
            return "has ended"
        place = f"{self.function(rank)}{self.at(rank)}" if self._of_user(rank) else ""
        if look.state in STOPPED:
            return "stopped by a signal (SIGSTOP)" + (f" in {place}" if place else "")
        if look.state == DEVICE and not look.now:
            place = place or "a system call"
            return f"in {place}, and waits for storage or a device"
        return f"in {place}" if place else ""


def _short(name: str) -> str:
    """`DataLoader.__next__` of `make.<locals>.DataLoader.__next__`; a decorator has no name."""
    return "the program" if name == "<module>" else name.rpartition("<locals>.")[2]


def _many(ranks: Sequence[int], verb: str = "wait") -> str:
    one = "is" if verb == "are" else f"{verb}s"
    return f"1 rank {one}" if len(ranks) == 1 else f"{len(ranks)} ranks {verb}"


def span(seconds: float) -> str:
    """`2 m 10 s`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "m"), (rest, "s")]
    named = [f"{count} {unit}" for count, unit in parts if count][:2]
    return " ".join(named) or "0 s"
