"""Where things lie in a workspace."""

from dataclasses import dataclass

from sgpu_decl.model.attempt import AttemptRef

__all__ = ["BACK", "MARKER", "Staging", "Uses", "home_of"]

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


def home_of(user: str) -> str:
    """The staging folder where the YAML names none."""
    return f"/Workspace/Users/{user}/.sgpu"


@dataclass(frozen=True, slots=True)
class Staging:
    """A folder of the workspace: launches, and what they share, by content."""

    root: str

    def run(self, lineage: str, ref: AttemptRef) -> str:
        """The folder of all launches of one run."""
        return f"{self.root}/runs/{lineage[:8]}/{ref.address.folder}"

    def launch(self, lineage: str, ref: AttemptRef, token: str) -> str:
        """The folder of one launch."""
        return f"{self.run(lineage, ref)}/{ref.number}-{token[:8]}"

    def job(self, lineage: str, ref: AttemptRef, token: str) -> str:
        """The folder that a job launches its run from, again and again: one for each version of
        what it launches."""
        return f"{self.jobs(lineage, ref)}/{token[-16:]}"

    def jobs(self, lineage: str, ref: AttemptRef) -> str:
        """The folder of all versions of what a job launches."""
        return f"{self.root}/runs/{lineage[:8]}/job.{ref.address.folder}"

    def code(self, digest: str) -> str:
        """An archive of code, by the digest of its manifest."""
        return f"{self.root}/objects/code/{_hex(digest)}.tar.gz"

    def agent(self, digest: str) -> str:
        """The node agent, by its own SHA-256."""
        return f"{self.root}/objects/agent/{_hex(digest)}.zip"

    @property
    def packs(self) -> str:
        """The folder of packed environments."""
        return f"{self.root}/objects/packs"


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")
