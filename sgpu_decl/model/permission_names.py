"""What a level of `permissions`, and who has it, are called in a file and on the platform:
https://docs.databricks.com/api/workspace/jobs/setpermissions"""

from collections.abc import Mapping
from types import MappingProxyType

PLATFORM_LEVELS: Mapping[str, str] = MappingProxyType(
    {"view": "CAN_VIEW", "run": "CAN_MANAGE_RUN", "manage": "CAN_MANAGE"}
)
"""By our name of a level, the platform's, for runs and jobs."""

OWN_LEVELS: Mapping[str, str] = MappingProxyType(
    {theirs: ours for ours, theirs in PLATFORM_LEVELS.items()}
)
"""The other way."""

OWN_HOLDERS: Mapping[str, str] = MappingProxyType(
    {
        "user_name": "user",
        "group_name": "group",
        "service_principal_name": "service_principal",
    }
)
"""By the platform's name of a kind of holder, ours: the key of an entry of `permissions`."""
