"""`renamed_from`: what a file says about the address that a resource had before."""

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """The resource at `address` was at `before`. Both stand for all cells of a matrix. `place` is
    where the file says so."""

    address: Address
    before: Address
    place: Place | None = None
