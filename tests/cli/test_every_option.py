"""No command takes an option that it ignores: a law over the tree of commands.

An option that is ignored takes any value. So for every option of every command there is a value
here that is wrong, and the command has to refuse it; an option that is new fails until it has one.
"""

from collections.abc import Iterator

import click
import pytest

from sgpu_decl.agent.system.locks import wait_until_free
from sgpu_decl.cli.commands import COMMANDS, HELP_OPTIONS, LazyGroup
from sgpu_decl.cli.other_names import GONE
from tests.cli.conftest import Shell
from tests.support import COMMAND_RUN, some

READS_A_FILE = {"validate", "plan", "graph", "apply", "destroy", "adopt", "bundle render"}
"""Their FILE is what `--var` and `--set` change."""

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "run": ("true",),
    "logs": ("hello",),
    "results": ("hello",),
    "fetch": ("hello",),
    "wait": ("hello",),
    "cancel": ("hello",),
    "show": ("hello",),
    "adopt": ("job.nightly", "1"),
    "import": ("run.yaml",),
    "mlflow sync": ("hello",),
    "state show": ("hello",),
    "state mv": ("hello", "other"),
    "state rm": ("hello",),
    "state unlock": ("1",),
    "env show": ("hello#1",),
    "env diff": ("hello#1", "hello#1"),
    "env requirements": ("ai-4",),
}
"""What a command needs beside the option; `hello` has run once."""

WRONG: dict[str, str] = {
    "--target": "absent",
    "--project": "absent",
    "--var": "absent=1",
    "--var-file": "absent.yml",
    "--set": "absent=1",
    "--output": "absent",
    "--rerun": "absent",
    "--select": "absent",
    "--exclude": "absent",
    "--on-active": "absent",
    "--parallelism": "0",
    "--json-into": "absent/events.jsonl",
    "--tail": "-1",
    "--at": "0",
    "--since": "absent",
    "--out": "run.yaml",
    "--rank": "7",
    "--restart": "7",
    "--template": "absent",
    "--timeout": "absent",
    "--lock-timeout": "absent",
    "--force-after": "absent",
    "--to": "absent",
    "--keep": "0",
    "--keep-last": "-1",
    "--older-than": "absent",
    "--name": "no name",
    "--type": "absent",
    "--save": "run.yaml",
    "--write": "run.yaml",
    "--port": "70000",
    "--root": "run.yaml",
    "--gpus": "absent=1",
    "--python": "absent",
    "--profile": "absent",
    "--wheels": "absent",
    "--nodes": "3",
    "--base": "absent",
    "--propose-link": "https://me:hunter2@host/pull/1",
    "--secret": "absent",
    "--patience": "absent",
    "--limit": "1s",
    "--only": "nothing",
    "--from": "absent.py",
    "--sort": "absent",
    "--page": "absent",
    "--param": "absent",
}
"""A value of each option that no command may take."""


def leaves(
    group: click.Group | None = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    root = group or LazyGroup(COMMANDS, "sgpu", "")
    context = click.Context(root, help_option_names=HELP_OPTIONS)
    for name in root.list_commands(context):
        command = some(root.get_command(context, name))
        if isinstance(command, click.Group):
            if command.params:  # it does something by itself
                yield " ".join((*path, name)), command
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def options(command: click.Command) -> dict[str, click.Option]:
    return {
        max(param.opts, key=len): param
        for param in command.params
        if isinstance(param, click.Option)
    }


TREE = dict(leaves())
VALUED = [
    (name, option)
    for name, command in TREE.items()
    for option, item in options(command).items()
    if not item.is_flag
]


def test_overrides_belong_to_commands_that_read_a_file() -> None:
    reads = {
        name
        for name, command in TREE.items()
        if any(
            isinstance(param, click.Argument) and param.name in ("file", "words")
            for param in command.params
        )
    }
    assert reads == READS_A_FILE
    for option, more in (("--var", set()), ("--set", {"run"})):  # which describes a run itself
        having = {name for name, item in TREE.items() if option in options(item)}
        assert having == READS_A_FILE | more


def test_every_option_reaches_its_command() -> None:
    unused = {
        (name, option)
        for name, command in TREE.items()
        for option, item in options(command).items()
        if not item.expose_value
    }
    assert unused == set()


@pytest.mark.parametrize(("name", "option"), VALUED)
def test_a_wrong_value_of_an_option_is_refused(sgpu: Shell, name: str, option: str) -> None:
    sgpu.write("run.yaml", COMMAND_RUN)
    if name in ARGUMENTS and name != "adopt":
        sgpu.done("apply", "-y")
        for lock in sgpu.folder.glob(".sgpu/default/runs/hello/1/*.lock"):
            wait_until_free(str(lock))  # whoever ran it writes its last event after the outcome
    before = sgpu.written()
    refused = sgpu.here(*name.split(), option, WRONG[option], *ARGUMENTS.get(name, ()))
    assert refused.code in (1, 64), f"{option} {WRONG[option]} was taken: {refused.out}"
    assert "error" in refused.err
    assert sgpu.written() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("apply", "-y", "--detach", "--rank", "1"),
            "`--detach` follows no run: leave out `--rank`",
        ),
        (("cancel", "hello", "--no-wait", "--force-after", "1s"), "leave out `--force-after`"),
        (("env", "show", "gpu-4", "-t", "prod"), "`gpu-4` names no environment of a project"),
        (("env", "diff", "this", "gpu-4", "--project", "."), "`this` names no environment"),
        (("schema", "run", "--write", "schemas"), "`sgpu explain run` does"),
        (("logs", "hello", "-f", "-o", "json"), "`-o json` is one object"),
    ],
)
def test_options_that_do_not_go_with_what_is_named(
    sgpu: Shell, arguments: tuple[str, ...], words: str
) -> None:
    sgpu.write("run.yaml", COMMAND_RUN)
    refused = sgpu.exits(64, *arguments)
    assert words in refused.err + refused.out
    assert not (sgpu.folder / ".sgpu").exists()


@pytest.mark.parametrize("words", GONE)
def test_what_is_gone_names_the_way_out(sgpu: Shell, words: str) -> None:
    assert f"hint: {GONE[words]}" in sgpu.exits(64, *words.split()[1:]).err


def test_a_saved_plan_is_shown_as_it_is(sgpu: Shell) -> None:
    sgpu.write("run.yaml", COMMAND_RUN)
    sgpu.done("plan", "--out", "x.plan")
    sgpu.done("show", "x.plan")
    for option in (("-t", "prod"), ("--project", ".")):
        assert "names its own project and target" in sgpu.exits(64, "show", "x.plan", *option).err


def test_overrides_without_a_file_are_refused(sgpu: Shell) -> None:
    sgpu.write("exp.yaml", COMMAND_RUN)
    sgpu.done("apply", "-y", "exp.yaml")
    assert "there is no file here" in sgpu.exits(64, "destroy", "-y", "--set", "gpus=2").err
    assert "hello#1" in sgpu.here("status").out
