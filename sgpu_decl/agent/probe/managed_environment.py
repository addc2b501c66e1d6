"""Where nodes keep the Python environment of the bases `ai-…` (evidence: C5)."""

__all__ = ["MANAGED_ENVIRONMENT", "MANAGED_PYTHON"]

MANAGED_ENVIRONMENT = "/opt/databricks-environments/databricks-ai"
MANAGED_PYTHON = f"{MANAGED_ENVIRONMENT}/bin/python3"
