"""Errors and findings as text: cause, the place with an excerpt, next step."""

from collections.abc import Callable, Sequence

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.escapes import printable
from sgpu_decl.diagnostics.excerpts import excerpt
from sgpu_decl.errors import SgpuError

Reader = Callable[[str], str | None]

_MOST = 50


def render_error(error: SgpuError, *, read: Reader) -> str:
    """The findings that an error carries, then its code, message and hint. A hint that a finding
    has shown is left out. `read` gives a file's text."""
    parts = [render_findings(error.diagnostics, read=read)] if error.diagnostics else []
    parts.append(f"error[{error.code}]: {printable(error.message)}")
    if error.hint and error.hint not in [finding.hint for finding in error.diagnostics]:
        parts[-1] += f"\nhint: {printable(error.hint)}"
    return "\n\n".join(parts)


def render_findings(findings: Sequence[Diagnostic], *, read: Reader) -> str:
    """Every finding with the line it is about; beyond the first 50, their number."""
    sources: dict[str, str] = {}
    shown = []
    for finding in findings[:_MOST]:
        file = finding.place.file if finding.place else ""
        if file and file not in sources:
            sources[file] = read(file) or ""
        shown.append(excerpt(finding, sources.get(file, "")))
    if len(findings) > _MOST:
        shown.append(f"... and {len(findings) - _MOST} more")
    return "\n\n".join(text.rstrip("\n") for text in shown)
