"""A hook of mkdocs: the pages of the codes of checks and errors, one for each family of codes."""

from collections.abc import Iterator
from typing import Any

from sgpu_decl.cli.explain import kind_of_code
from sgpu_decl.diagnostics.codes import CodeEntry, families

FOLDER = "docs/codes"
NAV = "Checks and errors"
HEAD = """\
`sgpu explain CODE` prints the text of this page. A code does not change; its text may. A code of a
check has a severity: with an `error` the file is not valid, or the plan cannot be applied; with a
`warning` something may not work as you expect; an `info` is good to know. A code of an error has an
[exit code](../running.md#exit-codes). On a terminal a code stands in brackets, as in
`error[unknown_key]`; under `-o json` it is the `code` of a diagnostic or an error, and the `id` of
a check.
"""


def pages() -> dict[str, str]:
    """The text of each page, by its place on the site."""
    return {_file(family): "\n".join(_page(family, codes)) for family, codes in families().items()}


def _file(family: str) -> str:
    return f"{FOLDER}/{family.replace(' ', '-')}.md"


def _title(family: str) -> str:
    return family[:1].upper() + family[1:]


def _page(family: str, codes: tuple[CodeEntry, ...]) -> Iterator[str]:
    yield f"# {_title(family)}\n"
    yield HEAD
    for code in codes:
        yield f"## `{code.id}`\n"
        yield f"{code.meaning} ({kind_of_code(code)})\n"
        yield f"```yaml\n{code.yaml}```\n" if code.yaml else f"- Example: {code.example}"
        yield f"- What to do: {code.solution}\n"


def on_config(config: Any) -> Any:
    (reference,) = (part["Reference"] for part in config.nav if "Reference" in part)
    listed = [{_title(family): _file(family)} for family in families()]
    reference.append({NAV: listed})
    return config


def on_files(files: Any, *, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files
