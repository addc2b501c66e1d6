"""Which machines a number of GPUs of a type means."""

from dataclasses import dataclass

from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.gpu import ACCELERATORS

__all__ = ["Machines", "machines_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """`accelerator` is the platform's name of the kind of node; `gpus` are those of all nodes."""

    accelerator: str
    gpus: int
    nodes: int


def machines_of(config: RunConfig) -> Machines | None:
    """The nodes that a run gets; `None` where the platform has none such. One H100 is a node of its
    own; more come in nodes of eight."""
    fitting = [
        (name, per_node)
        for name, (kind, per_node) in ACCELERATORS.items()
        if kind.name == config.type.name
        and config.gpus % per_node == 0
        and (config.type.name == "A10" or per_node > 1 or config.gpus == 1)
    ]
    if not fitting:
        return None
    name, per_node = max(fitting, key=lambda it: it[1])
    return Machines(accelerator=name, gpus=config.gpus, nodes=config.gpus // per_node)
