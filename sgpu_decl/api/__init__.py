"""The calls that the command line, notebooks and other programs use.

A name is imported when it is first used, and everything heavy inside the calls, so that importing
this package costs little.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgpu_decl.api.environment_calls import base_requirements
    from sgpu_decl.api.session import Session
    from sgpu_decl.applying.apply_result import Applied
    from sgpu_decl.applying.rollout_events import RolloutEvents
    from sgpu_decl.backends.platform_checks import PlatformChecks
    from sgpu_decl.doctor.profile_file import load_profile
    from sgpu_decl.environments.package_lists.package_diff import difference
    from sgpu_decl.model.plan_options import PlanOptions
    from sgpu_decl.model.selectors import is_whole_name, split_attempt
    from sgpu_decl.planning.location import Location, current_folder
    from sgpu_decl.planning.plan_file import load_plan, refuse_taken
    from sgpu_decl.planning.prepared import Prepared
    from sgpu_decl.planning.project_file import refuse_warnings
    from sgpu_decl.planning.project_text import is_saved_plan
    from sgpu_decl.storing.state_store import Patience

__all__ = [
    "Applied",
    "Location",
    "Patience",
    "PlanOptions",
    "PlatformChecks",
    "Prepared",
    "RolloutEvents",
    "Session",
    "base_requirements",
    "current_folder",
    "difference",
    "is_saved_plan",
    "is_whole_name",
    "load_plan",
    "load_profile",
    "refuse_taken",
    "refuse_warnings",
    "split_attempt",
]

if not TYPE_CHECKING:
    _MODULES = {
        "Applied": "applying.apply_result",
        "Location": "planning.location",
        "Patience": "storing.state_store",
        "PlanOptions": "model.plan_options",
        "PlatformChecks": "backends.platform_checks",
        "Prepared": "planning.prepared",
        "RolloutEvents": "applying.rollout_events",
        "Session": "api.session",
        "base_requirements": "api.environment_calls",
        "current_folder": "planning.location",
        "difference": "environments.package_lists.package_diff",
        "is_saved_plan": "planning.project_text",
        "is_whole_name": "model.selectors",
        "load_plan": "planning.plan_file",
        "load_profile": "doctor.profile_file",
        "refuse_taken": "planning.plan_file",
        "refuse_warnings": "planning.project_file",
        "split_attempt": "model.selectors",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
        return getattr(import_module(f"sgpu_decl.{_MODULES[name]}"), name)
