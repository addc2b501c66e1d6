"""One GPU of this machine."""

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.gpu import GPUType, type_of_device


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Attributes:
    index: what CUDA_VISIBLE_DEVICES takes, where CUDA counts in the order of the PCI bus.
    name: what the driver calls it; empty where it does not say.
    memory: bytes, where they are known.
    part: whether it is a part of a GPU (MIG).
    """

    index: str
    name: str = ""
    memory: int | None = None
    uuid: str = ""
    part: bool = False

    @property
    def kind(self) -> GPUType | None:
        """Its type; `None` where the table has none for its name."""
        return type_of_device(self.name, self.memory)

    def may_be(self, wanted: GPUType) -> bool:
        """Whether it may be of a type: of any, where nobody knows its name."""
        if not self.name or wanted is GPUType.GPU:
            return True
        kind = self.kind
        return kind is not None and wanted.covers(kind)

    def is_meant_by(self, entry: str) -> bool:
        """Whether an entry of CUDA_VISIBLE_DEVICES names it: its number, its UUID, or how its UUID
        begins."""
        if entry.startswith("GPU-"):
            return not self.part and len(entry) > len("GPU-") and self.uuid.startswith(entry)
        return entry == self.index

    def __str__(self) -> str:
        name = self.name or "GPU without a name"
        return name if self._gigabytes is None else f"{name} ({self._gigabytes} GB)"

    @property
    def _gigabytes(self) -> int | None:
        """As its vendor counts them: the driver keeps a part of them for itself."""
        kind = self.kind
        if kind is not None and len(kind.memory) == 1:
            return kind.memory[0]
        return None if self.memory is None else round(self.memory / 1e9)
