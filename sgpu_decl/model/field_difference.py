"""Where two configs differ."""

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """One path whose value differs: `added` where the old side lacks it, `removed` where the new
    one does."""

    path: str
    before: Json
    after: Json
    added: bool
    removed: bool
