"""What a probe of a platform measures, and what that costs."""

from sgpu_decl.frozen_dataclass import dataclass

ACTS = ("report", "tree", "fail", "hold", "retried", "gang")
"""The runs of a probe, see `agent.probe.probe_program`. `gang` is one on two nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """What is measured.

    Attributes:
        nodes: how many nodes at most work together: 1 or 2.
        base: the base environment; `None` for the one that runs get by default.
        secret: the reference of a secret that nodes are to resolve, `scope/key`.
        patience: for how many seconds a GPU is waited for.
        limit: seconds of the time limit that one run is to exceed.
        only: which of `ACTS` are run; empty for all.
    """

    nodes: int = 1
    base: str | None = None
    secret: str | None = None
    patience: float = 1800.0
    limit: float = 60.0
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCost:
    """What a probe uses: so many runs, of GPUs of one type; in GPU minutes `usual`, and at most
    `worst`, which limits of the runs see to."""

    runs: int
    gpu: str
    usual: float
    worst: float
