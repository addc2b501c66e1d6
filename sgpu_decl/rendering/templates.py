"""Templates to text, with values of ours alone."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from sgpu_decl.shipped_files import shipped_folder

if TYPE_CHECKING:
    from jinja2 import Environment


def render(folder: str, template: str, **values: str | bool | Sequence[object]) -> str:
    """Return the text of a template, to the byte the same for the same values.

    Raises:
        jinja2.UndefinedError: a value that it names is missing.
    """
    return _environment(folder).get_template(template).render(**values)


@cache
def _environment(folder: str) -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(shipped_folder("templates") / folder),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # source of programs, and only values of ours go in
    )
