"""`sgpu completion`."""

import click

from sgpu_decl.cli.commands import HELP_OPTIONS
from sgpu_decl.cli.terminal_output import show, show_exactly

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice([*_SHELLS, "values"]))
@click.argument("typed", nargs=-1, metavar="[WORD]...")
@click.pass_context
def command(context: click.Context, *, shell: str, typed: tuple[str, ...]) -> int:
    """Print a script that completes commands, options and values with the Tab key.

    \b
    bash: eval "$(sgpu completion bash)" in ~/.bashrc
    zsh:  eval "$(sgpu completion zsh)" in ~/.zshrc, below `compinit`
    fish: sgpu completion fish > ~/.config/fish/completions/sgpu.fish

    The names of runs, attempts and targets come from files on this machine. Completion asks no
    backend and no store of a shared state.

    The scripts call `sgpu completion values -- WORD...`, which prints completions of the last WORD.
    """
    if shell != "values":
        if typed:
            raise click.UsageError(f"`sgpu completion {shell}` takes no word")
        from sgpu_decl.distribution import shipped_folder

        script = shipped_folder("templates") / "completion" / f"sgpu.{shell}"
        show(script.read_text(encoding="utf-8"), nl=False)
        return 0
    from click.shell_completion import ShellComplete

    *before, current = typed or ("",)
    completer = ShellComplete(
        context.find_root().command, {"help_option_names": HELP_OPTIONS}, "sgpu", ""
    )
    for item in completer.get_completions(before, current):
        help_text = f"\t{item.help}" if item.help else ""
        show_exactly(f":{item.type}" if item.type != "plain" else f"{item.value}{help_text}")
    return 0
