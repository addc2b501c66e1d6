"""Secrets of a run, resolved at launch and handed on by pipe: never written, never in argv."""

from collections.abc import Mapping
from pathlib import Path

from sgpu_decl.errors import BackendError

__all__ = ["resolve_secrets"]


def resolve_secrets(references: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the value of each secret by the name that ranks find it under.

    Args:
        references: name to `env:NAME`, `file:PATH` or `databricks:scope/key`.
        environ: the environment of the caller.

    Raises:
        BackendError: a value is not to be had here. The message names the reference only.
    """
    return {name: _resolve(name, text, environ) for name, text in references.items()}


def _resolve(name: str, reference: str, environ: Mapping[str, str]) -> str:
    scheme, _, rest = reference.partition(":")
    if scheme == "env":
        value = environ.get(rest)
        if value is None:
            raise BackendError(
                f"secret `{name}` refers to `{reference}`, which is not set here",
                hint=f"run `export {rest}=…` first, or point `env.secrets.{name}` elsewhere",
                code="secret_missing",
            )
        return value
    if scheme == "file":
        try:
            return Path(rest).expanduser().read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise BackendError(
                f"secret `{name}` refers to `{reference}`, which cannot be read: {error}",
                hint="give the path of a readable UTF-8 file that holds the value only",
                code="secret_missing",
            ) from None
    raise BackendError(
        f"secret `{name}` refers to `{reference}`, which the local backend cannot resolve",
        hint="use `env:NAME` or `file:PATH`, for instance in a target of your own",
        code="secret_missing",
    )
