"""A call of a function on its way to ranks: what a launch takes along besides its spec."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal

from sgpu_decl.frozen_dataclass import dataclass

Filled = Literal["rank", "world_size"]
"""Parameters that each rank can fill in itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pickled:
    """A pickle of protocol 5: its stream, and the large buffers that lie beside it. These are the
    caller's own memory: nothing is copied before they are written."""

    stream: bytes
    buffers: tuple[memoryview, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function and its arguments, pickled.

    Attributes:
        name: the function's, for messages.
        inputs: the tuple of positional arguments and the mapping of the others.
        python: the minor version of the caller's Python, such as `3.11`.
        cloudpickle: the version that made the pickles, None where they do not need it.
        folder: the caller's working folder, that of ranks on this machine too.
        path: the folders of the caller's `sys.path` that its interpreter does not have by itself.
        fill: what each rank fills in.
        group: whether ranks bring up torch's process group before the call.
        attended: whether the caller waits: ranks are then stopped when its process has ended.
        loads: the top-level packages that are imported when the function is loaded, before any of
            the caller's code is executed.
        limit: how many calls may be active at once where the run does not say it; None for any.
        sweep: whether it is one of a sweep. Its calls that need no GPU share the processors of this
            machine, where neither `limit` nor the run says how many are active.
        tags: MLflow tags that are of this call alone.
        keep_warm: for how many seconds what ranks import stays imported for the next call; 0 if it
            does not.
    """

    name: str
    function: Pickled
    inputs: Pickled
    python: str
    cloudpickle: str | None
    folder: Path
    path: tuple[str, ...] = ()
    fill: tuple[Filled, ...] = ()
    group: bool = False
    attended: bool = False
    loads: frozenset[str] = frozenset()
    limit: int | None = None
    sweep: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    keep_warm: float = 0.0
