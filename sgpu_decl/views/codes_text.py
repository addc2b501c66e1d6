"""Codes of checks and errors as text."""

from collections.abc import Mapping, Sequence

from sgpu_decl.diagnostics.codes import CodeEntry


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


def code_list(families: Mapping[str, Sequence[CodeEntry]]) -> str:
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
