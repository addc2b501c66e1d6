"""Pages of a list: how many, and from where on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.routes import JsonObject, Request, invalid

__all__ = ["Paging"]

_Value = TypeVar("_Value")
_USUAL = 20


@dataclass(frozen=True, slots=True)
class Paging:
    """A page; its token is the position of its first entry."""

    start: int
    size: int

    @classmethod
    def of(cls, request: Request, *, most: int) -> "Paging":
        """What a request asks for; a limit of 0 is the largest. Raises ApiError, 400."""
        size = request.integer("limit", _USUAL)
        if not 0 <= size <= most:
            raise invalid(f"limit must be between 0 and {most}, found {size}.")
        token = request.query.get("page_token") or request.query.get("offset") or "0"
        if not token.isdigit():
            raise invalid(f"Invalid page token '{token}'.")
        return cls(int(token), size or most)

    def part(self, found: Sequence[_Value]) -> Sequence[_Value]:
        """The entries of this page."""
        return found[self.start : self.start + self.size]

    def answer(self, name: str, shapes: Sequence[Json], total: int) -> JsonObject:
        """The page as the API gives it."""
        more = self.start + self.size < total
        answer: JsonObject = {name: list(shapes)} if shapes else {}
        answer["has_more"] = more
        if more:
            answer["next_page_token"] = str(self.start + self.size)
        if self.start:
            answer["prev_page_token"] = str(max(0, self.start - self.size))
        return answer
