"""The files beside `command.sh` that a launcher on the platform reads: variables, secrets,
hyperparameters."""

import json
from collections.abc import Mapping
from pathlib import Path

from sgpu_decl.testing.workspace.routes import ApiError
from sgpu_decl.testing.workspace.secrets import secret_value
from sgpu_decl.testing.workspace.tenant import Tenant

__all__ = ["HYPERPARAMETERS", "Unprepared", "resolved", "variables"]

VARIABLES = "env_vars.json"
SECRETS = "secret_env_vars.json"
HYPERPARAMETERS = "hyperparameters.yaml"


class Unprepared(Exception):
    """Something that a task names cannot be made ready; the message is what the run's state
    says."""


def variables(tenant: Tenant, folder: Path, *, secrets: bool = True) -> dict[str, str]:
    """The variables that lie beside a command; with `secrets` those too, resolved.

    Raises:
        Unprepared: a file makes no sense, or there is no such secret.
    """
    found = {
        entry["name"]: entry["value"] for entry in _entries(folder / VARIABLES, "name", "value")
    }
    if not secrets:
        return found
    for entry in _entries(folder / SECRETS, "name", "secret_scope", "secret_key"):
        name = entry["name"]
        found[name] = resolved(tenant, name, entry["secret_scope"], entry["secret_key"])
    return found


def resolved(tenant: Tenant, name: str, scope: str, key: str) -> str:
    """The secret for a variable. Raises Unprepared."""
    try:
        return secret_value(tenant, scope, key).decode()
    except ApiError as error:
        message = f"Failed to resolve secret for env var {name}: {error.message}"
        raise Unprepared(message) from None
    except UnicodeDecodeError:
        message = f"Failed to resolve secret for env var {name}: {scope}/{key} is no text"
        raise Unprepared(message) from None


def _entries(file: Path, *names: str) -> list[Mapping[str, str]]:
    try:
        given = json.loads(file.read_bytes())
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise Unprepared(f"Failed to parse {file.name}: {error}") from None
    if not isinstance(given, list) or not all(_has(entry, names) for entry in given):
        raise Unprepared(f"Failed to parse {file.name}: a list of objects with {', '.join(names)}")
    return given


def _has(entry: object, names: tuple[str, ...]) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in names)
