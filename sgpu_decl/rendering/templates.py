"""Templates to text, with values of ours alone."""

from collections.abc import Sequence

from sgpu_decl.resources import locate

__all__ = ["render"]


def render(folder: str, template: str, **values: str | bool | Sequence[object]) -> str:
    """Return the text of a template, to the byte the same for the same values.

    Raises:
        jinja2.UndefinedError: a value that it names is missing.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(locate("templates") / folder),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # source of programs, and only values of ours go in
    )
    return environment.get_template(template).render(**values)
