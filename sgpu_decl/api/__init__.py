"""The calls that the command line, notebooks and other programs use.

Everything heavy is imported inside the calls, so that importing this package costs little.
"""

from sgpu_decl.api.environment_calls import base_requirements, environment
from sgpu_decl.api.saved_plans import is_saved_plan, load_plan, refuse_taken
from sgpu_decl.api.session import Session
from sgpu_decl.applying.prepared import Prepared
from sgpu_decl.facts.location import Location, current_folder
from sgpu_decl.model.plan_options import PlanOptions
from sgpu_decl.storing.state_store import Patience

__all__ = [
    "Location",
    "Patience",
    "PlanOptions",
    "Prepared",
    "Session",
    "base_requirements",
    "current_folder",
    "environment",
    "is_saved_plan",
    "load_plan",
    "refuse_taken",
]
