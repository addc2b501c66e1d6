"""`sgpu explain`."""

from collections.abc import Collection

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import output_option
from sgpu_decl.cli.terminal_output import answer, show
from sgpu_decl.diagnostics.codes import registry
from sgpu_decl.errors import NotFound
from sgpu_decl.views.codes_text import code_list, code_text

__all__ = ["command"]

_MOST = 3


@click.command("explain")
@click.argument("code", required=False, metavar="[CODE]", shell_complete=completed_by("codes"))
@output_option()
def command(*, code: str | None, output: str) -> int:
    """Explain a code of a check or an error, such as `unknown_key`: what it means, an example, and
    what to do.

    Errors and checks show their code in brackets, as in `error[unknown_key]`. Without CODE, all
    codes are listed.

    Exit codes: 0, and 1 if there is no such code.
    """
    codes = registry()
    if code is None:
        if output == "json":
            answer({"codes": [entry.to_json() for entry in codes.values()]})
        else:
            show(code_list(codes.values()))
        return 0
    if code not in codes:
        near = " or ".join(f"`{entry}`" for entry in _near(code, codes))
        raise NotFound(
            f"there is no code `{code}`",
            hint=f"did you mean {near}?" if near else "`sgpu explain` lists all codes",
        )
    if output == "json":
        answer(codes[code].to_json())
    else:
        show(code_text(codes[code]))
    return 0


def _near(text: str, codes: Collection[str]) -> list[str]:
    """The codes that are most like the text; else the first that hold it (`mlflow`)."""
    from difflib import get_close_matches

    plain = text.lower().replace("-", "_")
    return (
        get_close_matches(plain, codes, n=_MOST)
        or [name for name in codes if plain and plain in name][:_MOST]
    )
