"""The page of commands: what `--help` says of each, and its examples."""

import inspect
import re
from collections.abc import Iterator

import click

from sgpu_decl.cli.commands import COMMANDS, EXAMPLES, HELP_OPTIONS, LazyGroup

VALUES = {
    "--at": "12",
    "--base": "gpu-4",
    "--exclude": "run.debug",
    "--force-after": "2m",
    "--from": "train.py:main",
    "--gpus": "2",
    "--json-into": "events.jsonl",
    "--keep": "1",
    "--keep-last": "1",
    "--limit": "90s",
    "--lock-timeout": "5m",
    "--name": "baseline",
    "--nodes": "2",
    "--older-than": "7d",
    "--out": "train.plan",
    "--only": "report",
    "--parallelism": "4",
    "--param": "day=2026-11-02",
    "--patience": "1h",
    "--port": "8080",
    "--profile": "profile.yaml",
    "--project": "../vision",
    "--propose-link": "https://github.com/team/vision/pull/12",
    "--python": ".venv/bin/python",
    "--rank": "3",
    "--rerun": "run.train",
    "--restart": "1",
    "--root": "workspace",
    "--save": "run.yaml",
    "--secret": "ml/hf",
    "--select": "'run.sweep*'",
    "--set": "args.lr=0.1",
    "--since": "10m",
    "--sort": "loss",
    "--tail": "100",
    "--target": "prod",
    "--template": "gitops",
    "--timeout": "2h",
    "--to": "https://mlflow.example.com",
    "--type": "A100",
    "--var": "data=/mnt/shards",
    "--var-file": "values/prod.yml",
    "--wheels": "dist",
    "--write": "schemas",
}
"""An example of the value of each option. A new option needs one."""
OF_COMMANDS = {
    ("report", "--out"): "train.html",
    ("dev workspace", "--gpus"): "GPU_8xH100=1",
    ("adopt", "--write"): "jobs/nightly.yml",
    ("plan", "--base"): "origin/main",
    ("plan", "--limit"): "20000",
    ("show", "--limit"): "20000",
}
"""Where an option of one command takes something else."""

HEAD = """\
# Commands

`sgpu COMMAND --help` prints what this page says of a command. Data goes to stdout, progress and messages to stderr.
[Exit codes](../running.md#exit-codes) and [JSON answers](json.md) have pages of their own.
"""


def command_tree() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Each command with its words, parents first."""
    root = LazyGroup(COMMANDS, "sgpu", "")
    yield from _below(root, click.Context(root, info_name="sgpu", help_option_names=HELP_OPTIONS))


def _below(
    group: click.Group, above: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        context = click.Context(command, info_name=name, parent=above)
        yield context.command_path, command, context
        if isinstance(command, click.Group):
            yield from _below(command, context)


def page() -> str:
    parts = [HEAD]
    for words, command, context in command_tree():
        usage = " ".join((words, *command.collect_usage_pieces(context)))
        parts += [
            f"## `{words}`\n",
            f"```\n{usage}\n```\n",
            _text(inspect.cleandoc(command.help or "")),
        ]
        options = [option for option in command.params if isinstance(option, click.Option)]
        if options:
            parts += ["| option | meaning | example |\n|---|---|---|"]
            parts += [*(_row(option, words) for option in options), ""]
        lines = EXAMPLES[words.removeprefix("sgpu ")]
        title = "Example" if len(lines) == 1 else "Examples"
        parts += [f"{title}:\n", "```sh", *lines, "```\n"]
    return "\n".join(parts)


def _text(help_text: str) -> str:
    """The help as Markdown: click's `\\b` keeps the lines of a paragraph, so they are a block here."""
    found = []
    for paragraph in help_text.split("\n\n"):
        kept, _, lines = paragraph.partition("\b\n")
        found.append(f"```text\n{lines.rstrip()}\n```" if lines else _plain(kept))
    return "\n\n".join(found).strip() + "\n"


def _plain(text: str) -> str:
    return re.sub(r"(?<!`)<", "&lt;", text)


def example(option: click.Option, command: str) -> str:
    """A value of an option of a command.

    Raises:
        KeyError: it is missing in the table.
    """
    if isinstance(option.type, click.Choice):
        return next(str(one) for one in option.type.choices if one != option.default)
    found = [OF_COMMANDS.get((command, name)) or VALUES.get(name) for name in option.opts]
    given = next(filter(None, found), None)
    if given is None:
        raise KeyError(f"`{option.opts[-1]}` has no example in scripts/reference/commands.py")
    return given


def _row(option: click.Option, words: str) -> str:
    value = "" if option.is_flag or option.count else f" {_value_name(option)}"
    *short, long = (*option.opts, *option.secondary_opts)
    names = ", ".join((*(f"`{name}`" for name in short), f"`{long}{value}`"))
    told = [_plain(option.help or "")]
    if isinstance(option.type, click.Choice):
        told.append("One of " + ", ".join(f"`{one}`" for one in option.type.choices) + ".")
    if option.show_default and not option.is_flag and option.default not in (None, ()):
        told.append(f"Default: `{option.default}`.")
    shown = "" if not value else f" {example(option, words.removeprefix('sgpu '))}"
    return f"| {names} | {' '.join(' '.join(told).split())} | `{long}{shown}` |"


def _value_name(option: click.Option) -> str:
    if isinstance(option.type, click.Choice) and not option.metavar:
        return (option.name or "").upper()
    return option.metavar or option.type.name.upper()
