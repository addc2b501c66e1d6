"""Write docs/checks.md and docs/errors.md from the registry of codes."""

import sys
from collections.abc import Iterator
from pathlib import Path

from sgpu_decl.diagnostics.codes import CodeEntry, registry

DOCS = Path(__file__).resolve().parent.parent / "docs"

CHECKS = """\
# Checks

The findings of `sgpu validate` and `sgpu plan` about a file and its runs. On a terminal the code
stands in brackets, as in `error[unknown_key]`. Under `-o json` it is the `code` of a diagnostic
and the `id` of a check. `sgpu explain CODE` prints the text of this page. A code does not change;
its text may.

- `error`: the file is not valid, or the plan cannot be applied.
- `warning`: the plan can be applied, but something may not work as you expect.
- `info`: a choice of sgpu, or something good to know.

A check that asks a server, such as a workspace, can also have the code of the [error](errors.md)
that it got.
"""
ERRORS = """\
# Errors

The errors of commands. The code stands in brackets, as in `error[not_found]`. Under `-o json` it is
`error.code`. Several errors share an [exit code](running.md#exit-codes), so a program should look
at the code. `sgpu explain CODE` prints the text of this page. A code does not change; its text may.
Mistakes in a file have codes of their own, in `error.diagnostics`: see [checks](checks.md).
"""


def pages() -> dict[str, str]:
    """The text of each page, by the name of its file."""
    codes = registry().values()
    checks = [code for code in codes if code.severities]
    errors = [code for code in codes if code.exit_code is not None]
    return {
        "checks.md": _page(CHECKS, checks, errors=False),
        "errors.md": _page(ERRORS, errors, errors=True),
    }


def _page(head: str, codes: list[CodeEntry], *, errors: bool) -> str:
    note = "<!-- Written by scripts/code_pages.py from sgpu_decl/diagnostics/codes.toml. -->\n"
    return "\n".join([note + head, *(line for code in codes for line in _section(code, errors))])


def _section(code: CodeEntry, errors: bool) -> Iterator[str]:  # noqa: FBT001
    kind = f"exit {code.exit_code}" if errors else ", ".join(map(str, code.severities))
    yield f"## `{code.id}`\n"
    yield f"{code.meaning} ({kind})\n"
    if code.yaml is not None:
        yield f"```yaml\n{code.yaml}```\n"
    else:
        yield f"- Example: {code.example}"
    yield f"- What to do: {code.solution}\n"


def main() -> int:
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
