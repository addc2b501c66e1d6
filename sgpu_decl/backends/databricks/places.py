"""Where things lie in a workspace."""

import json
from dataclasses import dataclass
from typing import Any

from sgpu_decl.agent.environment.packs import index_name
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptRef

__all__ = ["BACK", "MARKER", "Staging", "Uses", "home_of", "uses_in"]

BACK = "back"
"""What nodes bring back to a launch folder lies below it."""

MARKER = "submitted.json"
"""Which run a launch folder became: written once it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Which shared objects a launch needs: digests of its code, of the agent, of the manifest of
    its environment. The marker says it."""

    agent: str
    code: str | None = None
    environment: str | None = None


def uses_in(marker: bytes) -> Uses | None:
    """What a marker says; None where it is of another version, and may need anything."""
    try:
        uses: dict[str, Any] = json.loads(marker)["uses"]
        return Uses(**uses)
    except (ValueError, KeyError, TypeError):
        return None


def home_of(user: str) -> str:
    """The staging folder where the YAML names none."""
    return f"/Workspace/Users/{user}/.sgpu"


@dataclass(frozen=True, slots=True)
class Staging:
    """A folder of the workspace: launches, and what they share, by content."""

    root: str

    def run(self, lineage: str, ref: AttemptRef) -> str:
        """The folder of all launches of one run, or of all versions of what a job launches."""
        kind = "job." if ref.address.kind is Kind.JOB else ""
        return f"{self.root}/runs/{lineage[:8]}/{kind}{ref.address.folder}"

    def launch(self, lineage: str, ref: AttemptRef, token: str) -> str:
        """The folder of one launch; of a job's run the one that it is launched from again and
        again."""
        name = token[-16:] if ref.address.kind is Kind.JOB else f"{ref.number}-{token[:8]}"
        return f"{self.run(lineage, ref)}/{name}"

    def code(self, digest: str) -> str:
        """An archive of code, by the digest of its manifest."""
        return f"{self.root}/objects/code/{_hex(digest)}.tar.gz"

    def agent(self, digest: str) -> str:
        """The node agent, by its own SHA-256."""
        return f"{self.agents}/{_hex(digest)}.zip"

    @property
    def agents(self) -> str:
        """The folder of node agents."""
        return f"{self.root}/objects/agent"

    @property
    def packs(self) -> str:
        """The folder of packed environments."""
        return f"{self.root}/objects/packs"

    def shared(self, uses: Uses) -> tuple[str, ...]:
        """What a launch needs beside its folder. An environment is known by its index, which is
        sent last."""
        return (
            self.agent(uses.agent),
            *((self.code(uses.code),) if uses.code else ()),
            *((f"{self.packs}/{index_name(uses.environment)}",) if uses.environment else ()),
        )


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")
