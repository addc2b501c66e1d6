"""What the ranks returned: a list in rank order."""

import pickle
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from sgpu_decl.errors import SgpuError
from sgpu_decl.functions.failing import RankFailed, raise_failure
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json

if TYPE_CHECKING:
    from sgpu_decl.api import Session

__all__ = ["Results", "collect_outputs_or_raise"]

R = TypeVar("R")


class Results(list[R]):
    """The value that each rank returned, in rank order; a notebook shows them as a table.

    Attributes:
        attempt: such as `train#8`.
    """

    def __init__(self, values: Iterable[R] = (), *, attempt: str = "") -> None:
        super().__init__(values)
        self.attempt = attempt

    def _repr_html_(self) -> str:
        from sgpu_decl.views.results_html import render

        return render(self, title=self.attempt)


def collect_outputs_or_raise(
    session: "Session", ref: AttemptRef, run: Mapping[str, Json]
) -> Results[object]:
    """Return what the ranks of an attempt that has ended returned.

    Args:
        run: its status object.

    Raises:
        BaseException: a rank's exception; see `failing.raise_failure`.
        RankFailed: the attempt failed otherwise, or a rank left without returning.
        SgpuError: a value cannot be unpickled here.
    """
    if run["state"] != "succeeded":
        raise_failure(session, ref, run)
    ranks = run["ranks"]
    size = len(ranks) if isinstance(ranks, list) else 0
    found = {it["rank"]: it["value"] for it in session.runs.results(ref)}
    for rank in range(size):
        if rank not in found:
            raise RankFailed(
                f"rank {rank} of `{ref}` ended without returning",
                hint="let the function return: `os._exit` ends a rank at once",
                attempt=str(ref),
                rank=rank,
            )
    values = [_value(ref, rank, found[rank]) for rank in range(size)]
    return Results(values, attempt=str(ref))


def _value(ref: AttemptRef, rank: int, value: Json) -> object:
    if not (isinstance(value, Mapping) and value.keys() == {"pickle", "repr"}):
        return value
    path = str(value["pickle"])
    try:
        with open(path, "rb") as file:
            return pickle.load(file)  # noqa: S301  from our own ranks, in a folder of ours
    except Exception as error:
        raise SgpuError(
            f"what rank {rank} of `{ref}` returned cannot be unpickled here: "
            f"{type(error).__name__}: {error}",
            hint=f"it is `{value['repr']}`, kept in `{path}`",
            code="result_unreadable",
        ) from error
