"""Codes of checks and errors as text."""

from collections.abc import Iterable

from sgpu_decl.diagnostics.codes import CodeEntry

__all__ = ["code_list", "code_text", "kind_of_code"]


def kind_of_code(code: CodeEntry) -> str:
    """What a code is of: `error, warning` of a check, `exit 1` of an error, or both."""
    severities = [str(severity) for severity in code.severities]
    return ", ".join(severities + ([f"exit {code.exit_code}"] if code.exit_code else []))


def code_text(code: CodeEntry) -> str:
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


def code_list(codes: Iterable[CodeEntry]) -> str:
    """One line for each code."""
    rows = [(code.id, kind_of_code(code), code.meaning) for code in codes]
    first = max(len(row[0]) for row in rows)
    second = max(len(row[1]) for row in rows)
    return "\n".join(f"{id_:{first}}  {kind:{second}}  {meaning}" for id_, kind, meaning in rows)
