"""What a run or project file says, once it was read and validated, and where it says so: dotted
paths to places, looked up only when somebody asks."""

from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Lookup
from dataclasses import field
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.model.target import Mode
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar, Sequence, place_of

if TYPE_CHECKING:
    from sgpu_decl.config.job import Job
    from sgpu_decl.config.run import RunConfig


T = TypeVar("T")


class Places(Lookup[str, Place]):
    """The places of one run, whose block is `node`. `more` holds those that lie elsewhere (the
    values of a matrix)."""

    __slots__ = ("more", "node")

    def __init__(self, node: Mapping, more: Lookup[str, Place] | None = None) -> None:
        self.node = node
        self.more = more or {}

    def __getitem__(self, path: str) -> Place:
        place = self.get(path)
        if place is None:
            raise KeyError(path)
        return place

    @overload
    def get(self, path: str, default: None = None) -> Place | None: ...
    @overload
    def get(self, path: str, default: Place | T) -> Place | T: ...
    def get(self, path: str, default: Place | T | None = None) -> Place | T | None:
        """Asked for each field of ten thousand runs: that of `Mapping` raises and catches."""
        return self.more.get(path) or _find(self.node, path) or default

    def __iter__(self) -> Iterator[str]:
        return iter({**self.written(), **self.more})

    def __len__(self) -> int:
        return len({**self.written(), **self.more})

    def written(self) -> dict[str, Place]:
        """Those in the block, all at once."""
        places: dict[str, Place] = {}
        for path, place in _members(self.node, ""):
            places[path] = _find(self.node, path) or place if path in places else place
        return places


def locate(parent: Node, key: str | int) -> Place:
    """The place of a member: a scalar's own, or the key of a collection."""
    if isinstance(parent, Mapping):
        value = parent.entries[str(key)]
        written = isinstance(value, Scalar) and value.text
        return place_of(value) if written else parent.keys[str(key)]
    return place_of(parent.items[int(key)] if isinstance(parent, Sequence) else parent)


def _find(node: Node, path: str) -> Place | None:
    """A key may hold dots itself: the longest key that fits is taken."""
    if isinstance(node, Mapping):
        entries = node.entries
        if path in entries:
            return locate(node, path)
        end = len(path)
        while (end := path.rfind(".", 0, end)) > 0:
            if path[:end] in entries:
                return _find(entries[path[:end]], path[end + 1 :])
    elif isinstance(node, Sequence):
        head, _, rest = path.partition(".")
        if head.isdecimal() and int(head) < len(node.items):
            return _find(node.items[int(head)], rest) if rest else locate(node, int(head))
    return None


def _members(node: Node, prefix: str) -> Iterator[tuple[str, Place]]:
    members: Iterable[tuple[str | int, Node]] = (
        node.entries.items()
        if isinstance(node, Mapping)
        else enumerate(node.items)
        if isinstance(node, Sequence)
        else ()
    )
    for key, value in members:
        path = f"{prefix}{key}"
        yield path, locate(node, key)
        if not isinstance(value, Scalar):
            yield from _members(value, f"{path}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """One run, or one cell of a matrix.

    Attributes:
        config: without the matrix; `args` holds the cell's values.
        places: where the user wrote each field, by its dotted path.
        spec: the config without defaults, its name and the matrix.
    """

    address: Address
    config: "RunConfig"
    places: Lookup[str, Place] = field(compare=False)
    spec: Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedJob:
    """One job of a project.

    Attributes:
        places: where the user wrote each field, by its dotted path.
        place: where the job is named.
        spec: the config without defaults.
    """

    address: Address
    config: "Job"
    places: Lookup[str, Place] = field(compare=False)
    place: Place = field(compare=False)
    spec: Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Everything that one file and the files that it includes say.

    Attributes:
        runs: in the order of the file, the cells of a matrix in theirs.
        jobs: those of a project, in the order of the file.
        mode: what the target is for.
        production: whether the file says `mode: production`, which is the default, too.
        config_digest: of all addresses and specs: the same while nothing that matters changed.
        targets: the names of all targets in the file.
        included: the files that it includes, from its folder.
        removed: what the project lets go, neither cancelled nor deleted.
        left_out: runs, without their cells, and jobs that its target leaves out.
        keep_warm: of a called function: seconds that what its ranks import stays imported.
    """

    kind: Literal["run", "project"]
    file: str
    project_name: str | None
    target: str | None
    runs: tuple[LoadedRun, ...]
    config_digest: str
    jobs: tuple[LoadedJob, ...] = ()
    mode: Mode = Mode.PRODUCTION
    production: bool = False
    targets: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    removed: tuple[Address, ...] = ()
    left_out: tuple[Address, ...] = ()
    keep_warm: float = 0.0

    def resolved(self) -> dict[str, Json]:
        """What the file says for its target, with all layers and references filled in, and without
        defaults."""
        runs, jobs = ([_values(one) for one in many] for many in (self.runs, self.jobs))
        return {
            "project": self.project_name,
            "target": self.target,
            "mode": str(self.mode),
            "runs": runs,
            "jobs": jobs,
            "left_out": [str(address) for address in self.left_out],
        }


def _values(one: LoadedRun | LoadedJob) -> Json:
    return {"address": str(one.address), "spec": dict(one.spec.fields)}
