"""Which values of an option or an argument the Tab key offers."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def completed_by(*kinds: str) -> Complete:
    """What click asks for values; each kind is a name in the table of `completion_values`."""

    def complete(
        context: click.Context, _: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from sgpu_decl.cli.completion_values import offered

        return offered(kinds, context, incomplete)

    return complete
