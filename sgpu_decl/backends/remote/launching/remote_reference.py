"""What the state keeps of a launch on a platform, so that it is found again from any machine."""

import json
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any

from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.jsonable import Json, canonical, check_name
from sgpu_decl.model.launch import LaunchRecord

_LARGEST = 2**63 - 1  # the id of a run has 64 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteReference:
    """`folder` is the launch folder. `facts` are the backend's own: where the platform is, who
    launches, what the launch became."""

    folder: str
    facts: Mapping[str, Json] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The `LaunchRecord.reference`: of a launch that nothing else is known of, its folder."""
        return canonical({**self.facts, "folder": self.folder}) if self.facts else self.folder


@lru_cache
def reference_in(text: str) -> RemoteReference:
    """What a `LaunchRecord.reference` says."""
    if not text.startswith("{"):
        return RemoteReference(folder=text)
    facts: dict[str, Any] = json.loads(text)
    return RemoteReference(folder=facts.pop("folder"), facts=facts)


def check_reference(text: str, *groups: Mapping[str, tuple[type, ...]]) -> None:
    """Check what a state says of a launch, by the types of its facts.

    Args:
        groups: of the facts of each, it has all or none.

    Raises:
        ValueError: something is missing, or of another type.
    """
    said = json.loads(text) if text.startswith("{") else {"folder": text}
    expected: dict[str, tuple[type, ...]] = {"folder": (str,)}
    for group in groups:
        expected.update(group if group.keys() & said.keys() else {})
    for name, types in expected.items():
        if name not in said:
            raise ValueError(f"the reference of a launch lacks `{name}`")
        value = said[name]
        if type(value) not in types or (isinstance(value, int) and not 0 <= value <= _LARGEST):
            raise ValueError(f"the reference of a launch has no such `{name}`")
        if isinstance(value, str):
            check_name(value)
    if not said["folder"]:
        raise ValueError("the reference of a launch has an empty `folder`")


def reference_facts(record: LaunchRecord) -> Mapping[str, Any]:
    """The facts of a launch's reference; empty where it has none."""
    return reference_in(record.reference).facts if record.reference is not None else {}
