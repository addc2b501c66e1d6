"""Why something changes, or does not."""

from enum import StrEnum


class Reason(StrEnum):
    """A closed list, in order of precedence: the first that holds is given."""

    REQUESTED_RERUN = "requested_rerun"
    REMOVED_FROM_CONFIG = "removed_from_config"
    ALREADY_RUNNING = "already_running"
    PREVIOUS_LOST = "previous_lost"
    PREVIOUS_FAILED = "previous_failed"
    FIRST_RUN = "first_run"
    CONFIG_CHANGED = "config_changed"
    CODE_CHANGED = "code_changed"
    ENVIRONMENT_CHANGED = "environment_changed"
    LIVE_DRIFTED = "live_drifted"
    FAILED_NOT_RETRIED = "failed_not_retried"
    CANCELLED_BY_USER = "cancelled_by_user"
    UPSTREAM_FAILED = "upstream_failed"
    UP_TO_DATE = "up_to_date"
