"""The names that Ray has for types of GPU: those of the label `ray.io/accelerator-type` and of the
resource `accelerator_type:X`. A cluster that has no node of a type yet can only be asked by name.

Ray makes the name from what the driver calls the device (`ray._private.accelerators`), which leaves
out the size of the memory."""

import re
from collections.abc import Sequence

from sgpu_decl.model.gpu import GPUType

_TELLS_WORKSTATION_CARDS = (2, 60)  # the oldest Ray known to; 2.49 calls them `RTX` and `G`

_OWN = {  # names that are not made of ours
    GPUType.A10: ("A10", "A10G"),
    GPUType.T4: ("T4", "T4G"),
    GPUType.MI60: (),
    GPUType.MI250: ("AMD-Instinct-MI250X-MI250",),
    GPUType.MI300X: ("AMD-Instinct-MI300X-OAM", "AMD-Instinct-MI300X-HF"),
    GPUType.MI308X: ("AMD-Instinct-MI308X-OAM", "AMD-Instinct-MI308X"),
    GPUType.MI325X: ("AMD-Instinct-MI325X-OAM",),
    GPUType.MI350X: ("AMD-Instinct-MI350X-OAM",),
    GPUType.MI355X: ("AMD-Instinct-MI355X-OAM",),
}
_WORKSTATION = re.compile(r"(QUADRO|TITAN|RTX|GTX)_")
_SHARED = re.compile(r"QUADRO_|.+_ADA$")  # `RTX-6000` is both a Quadro and an Ada
_PART = re.compile(r"_([0-9]+G)B$")


def names_of_type(kind: GPUType, ray: Sequence[int]) -> tuple[str, ...]:
    """The names that Ray itself gives to nodes with GPUs of a type, and to no others; none if it
    has no such name.

    Args:
        ray: the major and minor version of Ray.
    """
    if kind in _OWN:
        return _OWN[kind]
    if _PART.search(kind.name) or kind is GPUType.H100_NVL or _SHARED.match(kind.name):
        return ()
    if _WORKSTATION.match(kind.name) and tuple(ray) < _TELLS_WORKSTATION_CARDS:
        return ()
    return (given_name(kind),)


def given_name(kind: GPUType) -> str:
    """The name of a type in Ray's way of writing, which whoever starts a node may give to it, as
    Ray's documentation says of `A100-80G`."""
    name = _PART.sub(r"_\1", kind.name)
    if kind.name.startswith("MI"):
        name = f"AMD-Instinct-{name}"
    elif re.match(r"[RG]TX_[0-9]{4}(_(TI|SUPER|D))*$", name):
        name = f"GeForce-{name.replace('_TI', '_Ti')}"
    return name.replace("_ADA", "_Ada").replace("_", "-")
