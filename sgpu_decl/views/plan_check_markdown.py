"""The checks of a plan in GitHub Markdown."""

from collections import Counter
from collections.abc import Iterator, Sequence

from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.views.markdown import code

_EQUAL_SHOWN = 3
_FIRST = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def check_lines(checks: Sequence[Diagnostic], *, every: bool) -> Iterator[tuple[str, int]]:
    """Yield each line, errors first, and how many checks it stands for. Unless `every` one is asked
    for, those of one code beyond three are counted in a line of their own."""
    totals = Counter((check.severity, check.code) for check in checks)
    seen: Counter[tuple[Severity, str]] = Counter()
    for check in sorted(checks, key=lambda check: _FIRST.index(check.severity)):
        key = (check.severity, check.code)
        seen[key] += 1
        if every or seen[key] <= _EQUAL_SHOWN:
            yield _line(check), 1
        elif seen[key] == _EQUAL_SHOWN + 1:
            rest = totals[key] - _EQUAL_SHOWN
            places = f"{code(check.code)} at {totals[key]:,} places, {rest:,} of them left out"
            yield f"- **{check.severity}** {places}: see `sgpu show PLAN`", rest


def _line(check: Diagnostic) -> str:
    about = f"{code(check.address)}: " if check.address else ""
    place = f" at {code(str(check.place))}" if check.place else ""
    hint = f"; {code(check.hint)}" if check.hint else ""
    return f"- **{check.severity}** {about}{code(check.summary)}{place}{hint}"
