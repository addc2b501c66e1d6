"""What a plan proposes: its effects, kept with the state, so that an apply can ask for them."""

from collections.abc import Mapping
from dataclasses import field

from sgpu_decl.frozen_dataclass import SOMETIMES, dataclass
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.plan import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one change of a plan does, apart from the state that it was planned for: `attempt`
    alone is of that state, and says which attempts count as this effect carried out. For a job that
    is created, it is the number of jobs that were ever created at the address.

    `beside` says that it starts beside active attempts of its run though the file does not say so
    (`--on-active parallel`). `spec` has no attempts in references; None where a run or job ends:
    what ends is that of the record. `code` and `environment` are digests, `packages` that of the
    list of a declared environment. `drifted` holds, as canonical JSON, each field that somebody
    changed on the platform.
    """

    address: Address
    kind: Kind
    backend: str
    action: Action
    destructive: bool = False
    moved_from: Address | None = None
    attempt: int | None = None
    spec: Spec | None = None
    code: str | None = None
    environment: str | None = None
    packages: str | None = None
    beside: bool = False
    drifted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a digest of an effect stands for: the files of code with the start of each one's
    digest, or packages with their versions."""

    digest: str
    items: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The effects of one plan, and who proposes them. `lineage` and `serial` are those of the state
    then; a serial of 0 means that there was none. `contents` says in what code and environments
    differ from later ones, where nobody has these any more. A proposal that `heals` is of a
    plan with `--heal`: it covers only an apply with `--heal`."""

    id: str
    target: str | None
    lineage: str
    serial: int
    tool_version: str
    who: str
    effects: tuple[Effect, ...]
    commit: str | None = None
    tree: str | None = None
    link: str | None = None
    contents: tuple[Content, ...] = ()
    heals: bool = field(default=False, metadata=SOMETIMES)
