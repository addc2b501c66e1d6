"""Errors and findings as text: cause, the place with an excerpt, next step."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.excerpts import excerpt
from sgpu_decl.errors import SgpuError
from sgpu_decl.views.terminal import Colour, paint, wrap

Reader = Callable[[str], str | None]

SEVERITY_COLOURS: Mapping[Severity, Colour] = MappingProxyType(
    {
        Severity.ERROR: Colour.RED,
        Severity.WARNING: Colour.YELLOW,
        Severity.INFO: Colour.CYAN,
    }
)
_MOST = 50


def render_findings(
    findings: Sequence[Diagnostic],
    error: SgpuError | None = None,
    *,
    read: Reader,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """Every finding with the line it is about; beyond the first 50, their number. Then the error
    that carries them, without a hint that a finding has shown.

    Args:
        read: gives a file's text.
        width: of a terminal, in columns: long sentences go on in the next line.
    """
    sources: dict[str, str] = {}
    shown = list(findings[:_MOST])
    if error is not None:
        hint = error.hint if error.hint not in [one.hint for one in findings] else None
        shown.append(Diagnostic(code=error.code, summary=error.message, hint=hint))
    texts = []
    for finding in shown:
        file = finding.place.file if finding.place else ""
        if file and file not in sources:
            sources[file] = read(file) or ""
        text = excerpt(
            finding,
            sources.get(file, ""),
            marked=partial(paint, colour=SEVERITY_COLOURS[finding.severity], on=colour),
            fitted=partial(wrap, width=width),
        )
        texts.append(text.rstrip("\n"))
    if len(findings) > _MOST:
        texts.insert(_MOST, f"... and {len(findings) - _MOST} more")
    return "\n\n".join(texts)
