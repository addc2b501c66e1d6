"""Variables that a job carries inline: `environment_variables`, named by a task's key."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sgpu_decl.testing.workspace.executing.places import workspace_path
from sgpu_decl.testing.workspace.executing.sidecars import Unprepared, resolved
from sgpu_decl.testing.workspace.tenant import Tenant

__all__ = ["inline_variables"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"\{\{secrets/([^/}]+)/([^}]+)\}\}")


def inline_variables(
    tenant: Tenant, settings: Mapping[str, Any], task: Mapping[str, Any]
) -> dict[str, str]:
    """The variables that the task's `environment_variables_key` names, references to secrets
    resolved.

    Raises:
        Unprepared: nothing has that key, or there is no such secret.
    """
    key = task.get("environment_variables_key")
    if key is None:
        return {}
    for entry in settings.get("environment_variables") or ():
        if entry.get("environment_variables_key") == key:
            spec = entry.get("spec") or {}
            given = _of_files(tenant, spec.get("files") or ()) | (spec.get("variables") or {})
            return {name: _value(tenant, name, str(text)) for name, text in given.items()}
    raise Unprepared(f"No environment_variables with the key '{key}'")


def _of_files(tenant: Tenant, files: Iterable[str]) -> dict[str, str]:
    """The `KEY=VALUE` lines of `.env` files; a later file wins."""
    found: dict[str, str] = {}
    for path in files:
        tree, _, rest = workspace_path(path)[1:].partition("/")
        try:
            text = (tenant.tree(tree) / rest).read_text()
        except OSError:
            raise Unprepared(f"Environment variables file {path} does not exist") from None
        for line in text.splitlines():
            if line.strip() and not line.startswith("#"):
                name, equals, value = line.partition("=")
                if not equals or not _NAME.fullmatch(name):
                    raise Unprepared(f"{path} has a line that is not KEY=VALUE")
                found[name] = value
    return found


def _value(tenant: Tenant, name: str, text: str) -> str:
    return _SECRET.sub(lambda found: resolved(tenant, name, found[1], found[2]), text)
