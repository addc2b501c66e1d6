"""Secrets of a run, resolved at launch and handed on by pipe: never written, never in argv."""

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.agent.system.secrets import WEBHOOK_KEY, WEBHOOK_URL
from sgpu_decl.errors import BackendError

if TYPE_CHECKING:  # `sgpu show` has no findings
    from sgpu_decl.diagnostics.diagnostic import Diagnostic
    from sgpu_decl.diagnostics.place import Place

_HOOK = {WEBHOOK_URL: "on_finish.webhook.url", WEBHOOK_KEY: "on_finish.webhook.secret"}
_WHY: Mapping[int | None, str] = {
    errno.ENOENT: "does not exist",
    errno.EISDIR: "is a folder",
    errno.EACCES: "you may not read",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _MissingSecret:
    """Why a reference has no value here, and what to do. Names the reference only."""

    summary: str
    hint: str


def secret_field(name: str) -> str:
    """The field of a run that refers to the secret of this variable."""
    return _HOOK.get(name, f"env.secrets.{name}")


def secret_name(name: str) -> str:
    """What people call the secret of this variable: that of a webhook has no name of its own."""
    return _HOOK.get(name, name)


def resolve_secrets(
    references: Mapping[str, str], environ: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Return the value of each secret by the name that ranks find it under.

    Args:
        references: name to `env:NAME`, `file:PATH` or `databricks:scope/key`.
        environ: the environment of the caller.
        folder: the base of relative paths.

    Raises:
        BackendError: a value is missing here. The message names the reference only.
    """
    return {name: _resolve(name, text, environ, folder) for name, text in references.items()}


def missing_secrets(
    references: Mapping[str, str],
    places: "Mapping[str, Place]",
    environ: Mapping[str, str],
    folder: Path,
) -> "list[Diagnostic]":
    """Warnings of secrets that could not be resolved here: a plan may be applied where they are.

    Args:
        references: see `resolve_secrets`.
        places: where the fields of the run were written.
        environ: the environment of the caller.
        folder: the base of relative paths.
    """
    from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity

    return [
        Diagnostic(
            code="secret_missing",
            severity=Severity.WARNING,
            summary=f"{missing.summary}: `apply` here would refuse",
            place=places.get(secret_field(name)),
            hint=missing.hint,
        )
        for name, reference in references.items()
        if (missing := _missing_secret(name, reference, environ, folder)) is not None
    ]


def _missing_secret(
    name: str, reference: str, environ: Mapping[str, str], folder: Path
) -> _MissingSecret | None:
    """Say why a secret could not be resolved here, None where it could, without reading it: a file
    may be a pipe, which gives its value once."""
    scheme, _, rest = reference.partition(":")
    if scheme == "env":
        if rest in environ:
            return None
        return _MissingSecret(
            summary=f"secret `{secret_name(name)}` refers to `{reference}`, which is not set here",
            hint=f"run `export {rest}=…` first, or point `{secret_field(name)}` elsewhere",
        )
    if scheme == "file":
        path = _path(rest, folder)
        try:
            mode = path.stat().st_mode
        except OSError as error:
            return _unreadable(name, reference, _why(error))
        if stat.S_ISDIR(mode):
            return _unreadable(name, reference, _WHY[errno.EISDIR])
        if not os.access(path, os.R_OK):
            return _unreadable(name, reference, _WHY[errno.EACCES])
        return None
    return _MissingSecret(
        summary=f"secret `{secret_name(name)}` refers to `{reference}`, which has no value on this "
        "machine",
        hint="use `env:NAME` or `file:PATH`, for instance in a target of your own",
    )


def _resolve(name: str, reference: str, environ: Mapping[str, str], folder: Path) -> str:
    refused = _missing_secret(name, reference, environ, folder)
    if refused is None:
        scheme, _, rest = reference.partition(":")
        if scheme == "env":
            return environ[rest]
        try:
            return _path(rest, folder).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            refused = _unreadable(name, reference, _why(error))
        except UnicodeDecodeError:
            refused = _unreadable(name, reference, "is no UTF-8 text")
    raise BackendError(refused.summary, hint=refused.hint, code="secret_missing") from None


def _path(text: str, folder: Path) -> Path:
    return folder / os.path.expanduser(text)  # unlike Path.expanduser, leaves an unknown `~name`


def _why(error: OSError) -> str:
    return _WHY.get(error.errno) or f"cannot be read ({(error.strerror or str(error)).lower()})"


def _unreadable(name: str, reference: str, why: str) -> _MissingSecret:
    return _MissingSecret(
        summary=f"secret `{secret_name(name)}` refers to `{reference}`, which {why}",
        hint="give the path of a readable UTF-8 file that holds the value only",
    )
