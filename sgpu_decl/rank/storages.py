"""Arrays and tensors in a pickle: not copied, and sharing memory after loading as before.

NumPy hands its memory to pickle as a buffer, but each array for itself; torch copies each storage
through `torch.save`. Here every tensor's storage becomes a buffer too, once. Arrays that share
memory are found by their addresses in a first pass; a second one makes them views of one array.

Loading needs no sgpu: it calls NumPy, torch and the standard library.
"""

import ctypes
import operator
import pickle
import sys
from bisect import bisect_right
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Region = tuple[int, int]  # the first address and the one after the last
    Reduced = tuple[Any, ...] | str

LARGE = 1 << 16  # bytes; what is smaller goes with the stream
_SOLVED = 10_000  # steps that NumPy may take to find whether two arrays have elements in common
_COMPARED = 200  # arrays with which each is compared; of more, those that overlap count as sharing


class DeferredCall:
    """A pickle of the result of `make(*arguments)`: the call is made when it is loaded."""

    def __init__(self, make: "Callable[..., object]", *arguments: object) -> None:
        self._reduced = make, arguments

    def __call__(self) -> None:
        """Pickle wants callables to be callable before they are made."""

    def __reduce__(self) -> "Reduced":
        return self._reduced


class Storages:
    """The reducers of one pickler.

    Keep it until the pickle is written: buffers are the memory of the objects, and the addresses of
    freed objects may be used again.

    Args:
        common: regions whose arrays and storages are to be views of one array, see `shared`.
        refused: says why a storage on another device than the CPU cannot be sent; without it torch
            pickles those its own way.
    """

    def __init__(
        self,
        common: "Sequence[Region]" = (),
        *,
        refused: "Callable[[str], Exception] | None" = None,
    ) -> None:
        self._common = common
        self._starts = [low for low, _ in common]
        self._roots: dict[Region, Any] = {}
        self._refused = refused
        self._pickled: list[tuple[Region, Any]] = []
        self._untyped: dict[int, Any] = {}

    def reducers(self) -> "dict[type, Callable[[Any], Reduced]]":
        """The entries for the dispatch table of a pickler, for the libraries that are loaded."""
        reducers: dict[type, Callable[[Any], Reduced]] = {}
        if "numpy" in sys.modules:
            import numpy as np

            reducers[np.ndarray] = self._array
        if "torch.storage" in sys.modules:
            import torch

            reducers[torch.Tensor] = self._tensor
            reducers[torch.storage.TypedStorage] = self._typed_storage
            reducers[torch.UntypedStorage] = self._untyped_storage
        return reducers

    def shared(self) -> "list[Region]":
        """The regions in which several pickled arrays or storages have elements in common; disjoint
        and in order."""
        ordered = sorted(self._pickled, key=lambda one: one[0])
        shared: list[Region] = []
        reaching: list[tuple[Region, Any]] = []  # so far, beyond the start of the next one
        for region, one in ordered:
            reaching = [entry for entry in reaching if entry[0][1] > region[0]]
            many = len(reaching) > _COMPARED
            for before, other in reaching:
                if many or _share(other, one):
                    shared.append((before[0], max(before[1], region[1])))
            reaching.append((region, one))
        return _merged(shared)

    def _array(self, array: "Any") -> "Reduced":
        import numpy as np

        if array.dtype.hasobject or not array.size:
            return array.__reduce_ex__(5)  # type: ignore[no-any-return]
        region = _region(array)
        common = self._within(region)
        if common is not None and self._roots.get(common) is not array:
            root: object = self._root(common, array)
            if not array.flags.writeable:
                root = DeferredCall(
                    operator.methodcaller("toreadonly"), DeferredCall(memoryview, root)
                )
            offset = array.__array_interface__["data"][0] - common[0]
            return np.ndarray, (array.shape, array.dtype, root, offset, array.strides)
        self._pickled.append((region, array))
        if array.nbytes >= LARGE and not array.flags.forc:
            array = np.ascontiguousarray(array)  # a buffer beside the stream, as others
        return array.__reduce_ex__(5)  # type: ignore[no-any-return]

    def _tensor(self, tensor: "Any") -> "Reduced":
        import torch

        make, arguments, *rest = tensor.__reduce_ex__(5)
        if make is getattr(torch._utils, "_rebuild_tensor_v3", None):
            # Of types such as float8 torch pickles what it cannot load itself: it looks for the
            # storage inside of a typed one.
            arguments = (self._typed(arguments[0], torch.uint8), *arguments[1:])
        return make, arguments, *rest

    def _typed_storage(self, typed: "Any") -> "Reduced":
        # Each tensor makes one of its own; what they hold is the tensors' common storage.
        untyped = typed._untyped_storage
        if untyped.device.type != "cpu" and self._refused is None:
            return typed.__reduce__()  # type: ignore[no-any-return]
        return self._typed(untyped, typed.dtype).__reduce__()

    def _typed(self, untyped: "Any", dtype: "Any") -> DeferredCall:
        import torch

        untyped = self._untyped.setdefault(untyped._cdata, untyped)
        named = {"wrap_storage": untyped, "dtype": dtype, "_internal": True}
        return DeferredCall(partial(torch.storage.TypedStorage, **named))

    def _untyped_storage(self, storage: "Any") -> "Reduced":
        import torch

        if storage.device.type != "cpu":
            if self._refused is None:
                return storage.__reduce__()  # type: ignore[no-any-return]
            raise self._refused(str(storage.device))
        size = storage.nbytes()
        if not size:
            return torch.UntypedStorage, (0,)
        low = storage.data_ptr()
        region = low, low + size
        self._pickled.append((region, storage))
        common = self._within(region)
        if common is None:
            whole, named = pickle.PickleBuffer(_memory(region, storage)), {}
        else:
            whole, named = self._root(common, storage), {"count": size, "offset": low - common[0]}
        tensor = DeferredCall(partial(torch.frombuffer, dtype=torch.uint8, **named), whole)
        return operator.methodcaller("untyped_storage"), (tensor,)

    def _within(self, region: "Region") -> "Region | None":
        at = bisect_right(self._starts, region[0]) - 1
        return self._common[at] if at >= 0 and region[1] <= self._common[at][1] else None

    def _root(self, region: "Region", holder: object) -> "Any":
        """The bytes of a region as one array; always the same object, so it is pickled once."""
        if region not in self._roots:
            import numpy as np

            memory = _memory(region, holder)
            self._roots[region] = np.frombuffer(memory, np.uint8)  # type: ignore[call-overload]
        return self._roots[region]


def _region(array: "Any") -> "Region":
    """The addresses between which all elements of an array lie."""
    low = high = array.__array_interface__["data"][0]
    for length, stride in zip(array.shape, array.strides, strict=True):
        reach = (length - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high + array.itemsize


def _share(one: "Any", other: "Any") -> bool:
    """Whether two overlapping arrays have elements in common: columns of a matrix have none."""
    import numpy as np

    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
        return True
    try:
        return np.shares_memory(one, other, max_work=_SOLVED)  # type: ignore[arg-type]
    except RuntimeError:  # numpy's TooHardError
        return True


def _merged(regions: "list[Region]") -> "list[Region]":
    merged: list[Region] = []
    for low, high in sorted(regions):
        if merged and low < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return merged


def _memory(region: "Region", holder: object) -> "ctypes.Array[ctypes.c_ubyte]":
    """The bytes of a region; they keep alive the object that owns them."""
    memory = (ctypes.c_ubyte * (region[1] - region[0])).from_address(region[0])
    memory.holder = holder  # type: ignore[attr-defined]
    return memory
