"""What a call returns: a list in rank order of what its ranks returned, or what the driver of a Ray
cluster returned."""

import pickle
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from sgpu_decl.errors import SgpuError
from sgpu_decl.functions.call_errors import RankFailed, raise_failure
from sgpu_decl.functions.call_follower import say
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.views.notebook_html import results_page
from sgpu_decl.views.results_table import secrets_note

if TYPE_CHECKING:
    from sgpu_decl.api import Session

R = TypeVar("R")


class Results(list[R]):
    """The value that each rank returned, in rank order; a notebook shows them as a table.

    Attributes:
        attempt: such as `train#8`.
    """

    def __init__(
        self,
        values: Iterable[R] = (),
        *,
        attempt: str = "",
        masked: Mapping[int, object] = MappingProxyType({}),
    ) -> None:
        super().__init__(values)
        self.attempt = attempt
        self._masked = dict(masked)  # what is shown instead, by rank

    def _repr_html_(self) -> str:
        readable = [self._masked.get(rank, value) for rank, value in enumerate(self)]
        return results_page(readable, title=self.attempt)


def result_or_raise(session: "Session", view: AttemptView) -> object:
    """Return what a call that has ended returned: `Results`, or of a Ray program the value of its
    driver.

    Raises:
        BaseException: a rank's exception; see `call_errors.raise_failure`.
        RankFailed: the attempt failed otherwise, or a rank ended without returning.
        SgpuError: a value cannot be unpickled here.
    """
    if view.state is not AttemptState.SUCCEEDED:
        raise_failure(session, view)
    ref, size = view.ref, len(view.ranks)
    returned = session.runs.returned(ref)
    if note := secrets_note(ref, returned):
        say(note)
    by_rank = {entry["rank"]: entry for entry in returned}
    for rank in range(size):
        if rank not in by_rank:
            raise RankFailed(
                f"rank {rank} of `{ref}` ended without returning",
                hint="let the function return: `os._exit` ends a rank at once",
                attempt=str(ref),
                rank=rank,
            )
    values = [_value(ref, rank, by_rank[rank]) for rank in range(size)]
    masked = {rank: by_rank[rank]["shown"] for rank in range(size) if "shown" in by_rank[rank]}
    if "ray" in session.runs.record(ref).inputs.spec.fields:
        (value,) = values  # one driver, whatever the number of nodes
        return value
    return Results(values, attempt=str(ref), masked=masked)


def _value(ref: AttemptRef, rank: int, result: Mapping[str, Json]) -> object:
    value = result["value"]
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
            hint=f"it is `{_described(result)}`, kept in `{path}`",
            code="result_unreadable",
        ) from error


def _described(result: Mapping[str, Json]) -> Json:
    readable = result.get("shown", result["value"])
    return readable["repr"] if isinstance(readable, Mapping) else readable
