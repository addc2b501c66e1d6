"""The GPUs that a run can ask for, and where: what `sgpu gpus` lists."""

from sgpu_decl.frozen_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOffer:
    """GPUs of one type at one place.

    Attributes:
        type: what `type` in a run names, or the name that the driver has for it.
        gpus: which numbers a run can ask for, in words: `1 to 8`, `1, or 8 on each node`.
        free: how many nobody uses now; None where the place does not say.
        total: how many there are; None where the place does not say.
        where: the place in words: `this machine`, a Ray cluster, a workspace.
        note: what else to know.
    """

    type: str
    gpus: str
    free: int | None = None
    total: int | None = None
    where: str
    note: str | None = None


def up_to(count: int) -> str:
    """The numbers of GPUs that a run can ask for where there are so many."""
    return "1" if count == 1 else f"1 to {count:,}"
