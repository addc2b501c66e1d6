"""The table of commands: where each one lives, and the line that `sgpu --help` shows for it.

The group reads help from here, so that `sgpu --help` loads no command and nothing below it.
"""

import importlib
from functools import partial
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HELP_OPTIONS = ["-h", "--help"]

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("sgpu_decl.cli.init:command", "Write a first run.yaml and train.py."),
    "validate": ("sgpu_decl.cli.validate:command", "Check a file and show all its mistakes."),
    "fmt": ("sgpu_decl.cli.fmt:command", "Write run and project files in one format."),
    "plan": ("sgpu_decl.cli.plan:command", "Show what apply would change, and why."),
    "graph": ("sgpu_decl.cli.graph:command", "Draw which run, job and environment uses which."),
    "apply": ("sgpu_decl.cli.apply:command", "Carry out a plan and follow its runs."),
    "run": ("sgpu_decl.cli.run:command", "Run a command on GPUs, without a YAML file."),
    "start": ("sgpu_decl.cli.start:command", "Start an applied job now."),
    "status": ("sgpu_decl.cli.status:command", "Show the latest attempt of each run."),
    "top": ("sgpu_decl.cli.top:command", "Watch what the ranks of runs do."),
    "logs": ("sgpu_decl.cli.logs:command", "Show the output of a run's ranks."),
    "stacks": ("sgpu_decl.cli.stacks:command", "Show Python stack traces of running ranks."),
    "results": ("sgpu_decl.cli.results:command", "Show the return values of ranks."),
    "report": ("sgpu_decl.cli.report:command", "Write an HTML page about a run or a sweep."),
    "open": ("sgpu_decl.cli.open:command", "Open the page of a run or job in the browser."),
    "fetch": ("sgpu_decl.cli.fetch:command", "Download the files that ranks wrote."),
    "wait": ("sgpu_decl.cli.wait:command", "Wait until runs have ended."),
    "cancel": ("sgpu_decl.cli.cancel:command", "Stop runs."),
    "destroy": ("sgpu_decl.cli.destroy:command", "Stop runs and delete their staged code."),
    "show": ("sgpu_decl.cli.show:command", "Show one run with its history, or a saved plan."),
    "diff": ("sgpu_decl.cli.diff:command", "Compare two attempts: config, code and results."),
    "adopt": ("sgpu_decl.cli.adopt:command", "Manage a job that exists in the workspace already."),
    "import": (
        "sgpu_decl.cli.import_file:command",
        "Write a file of another tool as a run or project file.",
    ),
    "bundle": ("sgpu_decl.cli.bundle:command", "Write jobs as files of a Databricks bundle."),
    "state": ("sgpu_decl.cli.state:command", "Show or edit the recorded state."),
    "env": ("sgpu_decl.cli.env:command", "Show and compare Python environments."),
    "mlflow": ("sgpu_decl.cli.mlflow:command", "Look at MLflow runs, or upload them to a server."),
    "schema": ("sgpu_decl.cli.schema:command", "Write the JSON Schemas."),
    "explain": (
        "sgpu_decl.cli.explain:command",
        "Explain a code of an error, a failure, or a field.",
    ),
    "gc": ("sgpu_decl.cli.gc:command", "Delete code, logs and output of old attempts."),
    "gpus": ("sgpu_decl.cli.gpus:command", "List the GPUs that runs can ask for."),
    "doctor": ("sgpu_decl.cli.doctor:command", "Check this machine and this project."),
    "dev": ("sgpu_decl.cli.dev:command", "Run a local emulator of a Databricks workspace."),
    "version": ("sgpu_decl.cli.version:command", "Show the version."),
    "completion": ("sgpu_decl.cli.completion:command", "Complete commands with the Tab key."),
    "help": ("sgpu_decl.cli.help:command", "Show the help of a command."),
}

SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("init", "validate", "plan", "apply", "run", "start"),
    "Look": (
        "status",
        "top",
        "show",
        "logs",
        "results",
        "report",
        "open",
        "fetch",
        "stacks",
        "diff",
        "wait",
    ),
    "Change": ("cancel", "destroy", "state", "gc"),
    "Project": ("fmt", "graph", "env", "adopt", "import", "bundle"),
    "Platform": ("gpus", "doctor", "mlflow", "dev"),
    "Help": ("help", "explain", "schema", "completion", "version"),
}
"""The commands as `sgpu --help` lists them."""

DEV_COMMANDS: dict[str, tuple[str, str]] = {
    "workspace": ("sgpu_decl.cli.dev:workspace_command", "Serve an emulated workspace."),
}

MLFLOW_COMMANDS: dict[str, tuple[str, str]] = {
    "sync": (
        "sgpu_decl.cli.mlflow:sync_command",
        "Upload a run from the local store to its server.",
    ),
    "ui": (
        "sgpu_decl.cli.mlflow:ui_command",
        "Serve MLflow's pages for the store of this project.",
    ),
}

ENV_COMMANDS: dict[str, tuple[str, str]] = {
    "bases": ("sgpu_decl.cli.env:bases_command", "List the base environments."),
    "show": ("sgpu_decl.cli.env:show_command", "Show one environment with its packages."),
    "requirements": (
        "sgpu_decl.cli.env:requirements_command",
        "Print a base as a requirements file.",
    ),
    "diff": ("sgpu_decl.cli.env:diff_command", "Compare two environments."),
}

STATE_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("sgpu_decl.cli.state:list_command", "List the recorded resources."),
    "show": ("sgpu_decl.cli.state:show_command", "Show one recorded resource."),
    "mv": ("sgpu_decl.cli.state:move_command", "Give a resource another address."),
    "rm": (
        "sgpu_decl.cli.state:remove_command",
        "Remove a resource from the state; runs and files stay.",
    ),
    "pull": ("sgpu_decl.cli.state:pull_command", "Print the whole state as JSON."),
    "push": ("sgpu_decl.cli.state:push_command", "Restore a state saved with `sgpu state pull`."),
    "log": ("sgpu_decl.cli.state:log_command", "Show who changed a shared state."),
    "migrate": ("sgpu_decl.cli.state:migrate_command", "Copy the state to a shared store."),
    "claim": (
        "sgpu_decl.cli.state:claim_command",
        "Bind a shared state to this repository after a rename.",
    ),
    "compact": ("sgpu_decl.cli.state:compact_command", "Delete old entries of a shared state."),
    "unlock": ("sgpu_decl.cli.state:unlock_command", "Release a lock that a dead process left."),
}


BUNDLE_COMMANDS: dict[str, tuple[str, str]] = {
    "render": (
        "sgpu_decl.cli.bundle:render_command",
        "Write the jobs of a project as files of a bundle.",
    ),
}

SUBCOMMANDS = {
    "bundle": BUNDLE_COMMANDS,
    "dev": DEV_COMMANDS,
    "mlflow": MLFLOW_COMMANDS,
    "env": ENV_COMMANDS,
    "state": STATE_COMMANDS,
}

EXAMPLES: dict[str, tuple[str, ...]] = {
    "init": (
        "sgpu init",
        "sgpu init --from train.py",
        "sgpu init experiments --project",
        "sgpu init --template gitops --name vision",
    ),
    "validate": ("sgpu validate", "sgpu validate train.yaml -t prod"),
    "fmt": ("sgpu fmt", "sgpu fmt --check --diff", "sgpu fmt - < run.yaml"),
    "plan": ("sgpu plan", "sgpu plan train -t prod --set args.lr=0.1"),
    "graph": ("sgpu graph", "sgpu graph --plan -t prod"),
    "apply": ("sgpu apply", "sgpu apply train.yaml -t prod --detach -y"),
    "run": (
        "sgpu run --gpus 2 -- python train.py --lr 1e-3",
        "sgpu run -g 4 train.py:main lr=0.1",
    ),
    "start": ("sgpu start job.nightly --wait", "sgpu start nightly --param day=2026-11-01"),
    "status": ("sgpu status", "sgpu status -w", "sgpu status 'sweep*' -o json"),
    "top": ("sgpu top", "sgpu top train", "sgpu top train --once -o json"),
    "logs": ("sgpu logs -f", "sgpu logs train --rank all --tail 100", "sgpu logs --since 10m"),
    "stacks": ("sgpu stacks train", "sgpu stacks 'train#8' --rank 3"),
    "results": ("sgpu results train", "sgpu results 'train#8' -o json"),
    "report": ("sgpu report train", "sgpu report 'sweep*' --sort loss -o sweep.html"),
    "open": ("sgpu open train", "sgpu open job.nightly", "sgpu open 'train#8' --print"),
    "fetch": ("sgpu fetch train",),
    "wait": ("sgpu wait train --timeout 2h", "sgpu wait 'sweep*'"),
    "cancel": ("sgpu cancel train", "sgpu cancel 'sweep*' --no-wait"),
    "destroy": ("sgpu destroy train", "sgpu destroy run.yaml -t dev -y"),
    "show": ("sgpu show train", "sgpu show train.plan -o markdown"),
    "diff": ("sgpu diff train", "sgpu diff 'train#7' 'train#8'"),
    "adopt": (
        "sgpu adopt job.nightly 8421 -t prod",
        "sgpu adopt job.nightly 8421 --write jobs/nightly.yml",
    ),
    "import": (
        "sgpu import train.yaml --write run.yaml",
        "sgpu import databricks.yml --write sgpu.yml",
    ),
    "bundle": ("sgpu bundle render -t prod",),
    "bundle render": ("sgpu bundle render -t prod", "sgpu bundle render -t prod --check"),
    "state": ("sgpu state list",),
    "state list": ("sgpu state list -t prod",),
    "state show": ("sgpu state show run.train", "sgpu state show run.train --at 12"),
    "state mv": ("sgpu state mv run.train run.pretrain",),
    "state rm": ("sgpu state rm run.train",),
    "state pull": ("sgpu state pull",),
    "state push": ("sgpu state push state.json",),
    "state log": ("sgpu state log --tail 5",),
    "state migrate": ("sgpu state migrate -t prod",),
    "state claim": ("sgpu state claim -t prod",),
    "state compact": ("sgpu state compact --older-than 90d",),
    "state unlock": ("sgpu state unlock 3f2a9c71",),
    "env": ("sgpu env bases",),
    "env bases": ("sgpu env bases",),
    "env show": ("sgpu env show this", "sgpu env show 'train#8'"),
    "env requirements": ("sgpu env requirements ai-4",),
    "env diff": ("sgpu env diff this 'train#8'",),
    "mlflow": ("sgpu mlflow ui", "sgpu mlflow sync 'train#8'"),
    "mlflow sync": ("sgpu mlflow sync 'train#8' --to https://mlflow.example.com",),
    "mlflow ui": ("sgpu mlflow ui --port 5001",),
    "schema": ("sgpu schema --write schemas",),
    "explain": (
        "sgpu explain unknown_key",
        "sgpu explain cuda_out_of_memory",
        "sgpu explain run.env.variables",
    ),
    "gc": ("sgpu gc --dry-run", "sgpu gc -y --keep-last 1 --older-than 7d"),
    "gpus": ("sgpu gpus", "sgpu gpus -t prod"),
    "doctor": ("sgpu doctor", "sgpu doctor -t prod"),
    "doctor probe": ("sgpu doctor probe -t prod", "sgpu doctor probe -t prod --nodes 2"),
    "doctor report": ("sgpu doctor report -t prod",),
    "dev": ("sgpu dev workspace",),
    "dev workspace": ("sgpu dev workspace --port 8080",),
    "version": ("sgpu version",),
    "completion": ("sgpu completion bash", "sgpu completion fish"),
    "help": ("sgpu help logs", "sgpu help state mv"),
}
"""What people type most, shown below the help of each command."""


RARE_OPTIONS = frozenset(
    {
        "--base",
        "--blame",
        "--detailed-exitcode",
        "--exclude",
        "--force-after",
        "--heal",
        "--json-into",
        "--limit",
        "--lock-timeout",
        "--offline",
        "--on-active",
        "--parallelism",
        "--project",
        "--propose",
        "--propose-link",
        "--restart",
        "--reviewed",
        "--trust-project",
        "--var-file",
    }
)
"""Options that stand below the others in the help of a command, so that it fits on a screen."""


def examples(path: str) -> str | None:
    """The examples of a command, as click shows them below its help."""
    lines = EXAMPLES.get(path, ())
    title = "Example" if len(lines) == 1 else "Examples"
    return "\b\n" + "\n".join((f"{title}:", *(f"  {line}" for line in lines))) if lines else None


def _format_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the options of a command, without the rare ones."""
    _write_options(command, ctx, formatter, "Options", rare=False)


def _format_epilog(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the examples of a command, and below them its rare options."""
    click.Command.format_epilog(command, ctx, formatter)
    _write_options(command, ctx, formatter, "More options", rare=True)


def _write_options(
    command: click.Command,
    ctx: click.Context,
    formatter: click.HelpFormatter,
    title: str,
    *,
    rare: bool,
) -> None:
    options = [one for one in command.get_params(ctx) if isinstance(one, click.Option)]
    chosen = [one for one in options if RARE_OPTIONS.isdisjoint(one.opts) != rare]
    records = [record for one in chosen if (record := one.get_help_record(ctx)) is not None]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


class LazyGroup(click.Group):
    """A group that imports a command when it is called, and says which name was nearest."""

    def __init__(self, table: dict[str, tuple[str, str]], name: str, text: str) -> None:
        super().__init__(name=name, help=text, invoke_without_command=True)
        self.callback = self._without_command
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._table:
            return None
        module, _, attribute = self._table[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"`{module}:{attribute}` is no command")
        command.epilog = examples(cmd_name if self.name == "sgpu" else f"{self.name} {cmd_name}")
        if not isinstance(command, click.Group):
            command.format_options = partial(_format_options, command)  # type: ignore[method-assign]
            command.format_epilog = partial(_format_epilog, command)  # type: ignore[method-assign]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = not args or args[0] in self._table or args[0].startswith("-")
        if not known and not ctx.resilient_parsing:
            from sgpu_decl.cli.other_names import unknown_command

            raise unknown_command(ctx.command_path, args[0], args[1:], self._table)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Names and lines from the table: no command is loaded for them."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=line)
            for name, (_, line) in self._table.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        sections = SECTIONS if self._table is COMMANDS else {"Commands": tuple(self._table)}
        width = max(map(len, self._table))
        for title, names in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self._table[name][1]) for name in names])

    @staticmethod
    @click.pass_context
    def _without_command(ctx: click.Context) -> None:
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())
