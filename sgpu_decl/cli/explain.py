"""`sgpu explain`."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.completed_by import completed_by
from sgpu_decl.cli.options import output_option
from sgpu_decl.cli.terminal_output import answer, show
from sgpu_decl.errors import NotFound

if TYPE_CHECKING:
    from sgpu_decl.diagnostics.codes import CodeEntry

_ROOTS = ("project", "run")
_MOST = 3


@click.command("explain")
@click.argument(
    "name",
    required=False,
    metavar="[CODE|KIND|FIELD]",
    shell_complete=completed_by("codes", "failure kinds", "explained fields"),
)
@output_option()
def command(*, name: str | None, output: str) -> int:
    """Explain a code of a check or an error, such as `unknown_key`, a kind of failure, such as
    `cuda_out_of_memory`, or a field, such as `run.gpus`.

    Errors and checks show their code in brackets, as in `error[unknown_key]`, and failed runs their
    kind. The path of a field begins with `run` or `project`, which may be left out; `run` alone
    lists the fields of a run. Without a name, all codes and kinds are listed.

    Exit codes: 0, and 1 if there is no such code, kind or field.
    """
    from sgpu_decl.diagnostics.codes import families, registry  # not for the Tab key
    from sgpu_decl.views.failure_text import failure_kinds, kind_list, kind_object, kind_page

    codes, kinds = registry(), failure_kinds()
    if name is None:
        if output == "json":
            answer(
                {
                    "codes": [entry.to_json() for entry in codes.values()],
                    "kinds": [kind_object(kind) for kind in kinds.values()],
                }
            )
        else:
            show(_code_list(families()))
            show(kind_list(kinds.values()))
    elif name in kinds:
        if output == "json":
            answer(kind_object(kinds[name]))
        else:
            show(kind_page(kinds[name]))
    elif name in codes:
        if output == "json":
            answer(codes[name].to_json())
        else:
            show(_code_text(codes[name]))
    elif name.partition(".")[0] in _ROOTS:
        _show_field(name, output)
    elif fields := _fields(name):
        _show_field(fields[0], output)
    else:
        near = " or ".join(f"`{entry}`" for entry in _near(name, [*codes, *kinds]))
        raise NotFound(
            f"there is no code, kind of failure or field `{name}`",
            hint=f"did you mean {near}?"
            if near
            else "`sgpu explain` lists all codes, `sgpu explain run` the fields of a run",
        )
    return 0


def _show_field(path: str, output: str) -> None:
    from sgpu_decl.api.published_schemas import describe

    field = describe(path)
    if output == "json":
        answer(dataclasses.asdict(field))
        return
    show(f"{field.path}: {field.type}")
    if field.default is not None:
        show(f"  default: {field.default}")
    show(f"  {field.description}")
    for child in field.children:
        name = child.path.rpartition(".")[2]
        kind = f"{child.type}, required" if child.required else child.type
        show(f"  {name}: {kind}")
        show(f"      {child.description}")


def _fields(name: str) -> list[str]:
    """The fields of a project or a run file that have this path below it (`gpus`)."""
    from sgpu_decl.api.published_schemas import describe

    found = []
    for root in _ROOTS if name else ():
        try:
            describe(f"{root}.{name}")
            found.append(f"{root}.{name}")
        except NotFound:
            continue
    return found


def _near(text: str, codes: Collection[str]) -> list[str]:
    """The codes that are most like the text; else the first that hold it (`mlflow`)."""
    from difflib import get_close_matches

    plain = text.lower().replace("-", "_")
    return (
        get_close_matches(plain, codes, n=_MOST)
        or [name for name in codes if plain and plain in name][:_MOST]
    )


def kind_of_code(code: "CodeEntry") -> str:
    """What a code is of: `error, warning` of a check, `exit 1` of an error, or both."""
    severities = [str(severity) for severity in code.severities]
    return ", ".join(severities + ([f"exit {code.exit_code}"] if code.exit_code else []))


def _code_text(code: "CodeEntry") -> str:
    """A code with all that is known of it."""
    example = (code.yaml or code.example or "").rstrip("\n")
    return "\n".join(
        [
            f"{code.id} ({kind_of_code(code)})",
            "",
            code.meaning,
            "",
            "example:",
            *(f"    {line}" for line in example.split("\n")),
            "",
            f"what to do: {code.solution}",
        ]
    )


def _code_list(families: "Mapping[str, Sequence[CodeEntry]]") -> str:
    """One line for each code, below the name of its family."""
    codes = [code for family in families.values() for code in family]
    first = max(len(code.id) for code in codes)
    second = max(len(kind_of_code(code)) for code in codes)
    lines: list[str] = []
    for family, entries in families.items():
        lines.append(f"{family}:")
        lines += [
            f"  {code.id:{first}}  {kind_of_code(code):{second}}  {code.meaning}"
            for code in entries
        ]
    return "\n".join(lines)
