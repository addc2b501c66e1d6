"""What is refused in the options of a run that `config:validate` is asked about."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sgpu_decl.testing.workspace.task_rules import TOKEN_LIMIT, TaskProblem

__all__ = ["option_problems"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WEEK = 7 * 24 * 60


def option_problems(options: Mapping[str, Any]) -> Iterator[TaskProblem]:
    """All problems, with paths as the options are written."""
    if len(options.get("idempotency_token") or "") > TOKEN_LIMIT:
        message = f"must have at most {TOKEN_LIMIT} characters."
        yield TaskProblem("idempotency_token", message)
    if int(options.get("max_retries") or 0) < 0:
        yield TaskProblem("max_retries", "must be 0 or more.")
    minutes = options.get("timeout_minutes")
    if minutes is not None and not 1 <= int(minutes) <= _WEEK:
        yield TaskProblem("timeout_minutes", f"must be between 1 and {_WEEK}.")
    if options.get("usage_policy_name") and options.get("usage_policy_id"):
        yield TaskProblem("usage_policy_id", "cannot be combined with usage_policy_name.")
    variables, secrets = options.get("env_variables") or {}, options.get("secrets") or {}
    for kind, names in (("env_variables", variables), ("secrets", secrets)):
        for name in names:
            if not _VARIABLE.fullmatch(name):
                yield TaskProblem(f"{kind}[{name}]", "is no name of an environment variable.")
    for name, reference in secrets.items():
        if str(reference).count("/") != 1:
            yield TaskProblem(f"secrets[{name}]", "must be of the form scope/key.")
        if name in variables:
            yield TaskProblem(f"secrets[{name}]", "is among env_variables too.")
