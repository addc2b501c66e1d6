"""How what runs on a node finds the workspace: MLflow by the URI `databricks`, and its run.

Receipts of real nodes name `MLFLOW_RUN_ID` and no address or token, and still MLflow's client works
there (evidence: A18, C15, C16). That client, and the SDK, look for credentials in variables, in
modules of Databricks' own runtime, and in `~/.databrickscfg`. The last is the one that every
interpreter of a node finds without a variable, so nodes get it here.
"""

from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.testing.workspace.mlflow_names import Tracked

__all__ = ["NodeAccess"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccess:
    """The workspace's address, and the token of whoever submitted. If it is `generous`, nodes get
    both in variables too, and the id of the experiment."""

    url: str
    token: str
    generous: bool
    tracked: Tracked

    @property
    def variables(self) -> dict[str, str]:
        """What the environment of every node has."""
        proven = {"MLFLOW_TRACKING_URI": "databricks", "MLFLOW_RUN_ID": self.tracked.run_id}
        if not self.generous:
            return proven
        return {
            **proven,
            "MLFLOW_EXPERIMENT_ID": self.tracked.experiment_id,
            "MLFLOW_TRACKING_TOKEN": self.token,
            "DATABRICKS_HOST": self.url,
            "DATABRICKS_TOKEN": self.token,
        }

    def write_profile(self, home: Path) -> None:
        """Put credentials into a home folder."""
        file = home / ".databrickscfg"
        file.touch(mode=0o600)
        file.write_text(f"[DEFAULT]\nhost = {self.url}\ntoken = {self.token}\n")
