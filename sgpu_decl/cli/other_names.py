"""The words of other tools and of former versions, and what to type here instead.

Each hint is about what the command at hand takes: `tests/cli/test_other_names.py` types them.
"""

import re
import shlex
from collections.abc import Callable, Collection, Sequence

import click

from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import Usage

SYNONYMS = {
    "ps": "status",
    "ls": "status",
    "list": "status",
    "queue": "status",
    "squeue": "status",
    "htop": "top",
    "watch": "top",
    "monitor": "top",
    "refresh": "status",
    "up": "apply",
    "create": "apply",
    "update": "apply",
    "launch": "apply",
    "submit": "apply",
    "deploy": "apply",
    "exec": "run",
    "stop": "cancel",
    "kill": "cancel",
    "scancel": "cancel",
    "abort": "cancel",
    "down": "destroy",
    "delete": "destroy",
    "rm": "destroy",
    "remove": "destroy",
    "tail": "logs",
    "attach": "logs",
    "describe": "show",
    "get": "show",
    "info": "show",
    "history": "show",
    "browse": "open",
    "view": "open",
    "download": "fetch",
    "output": "fetch",
    "outputs": "fetch",
    "lint": "validate",
    "format": "fmt",
    "check": "validate",
    "preview": "plan",
    "compare": "diff",
    "convert": "import",
    "convert-to-dabs": "import",
    "clean": "gc",
    "prune": "gc",
    "new": "init",
    "gpu": "gpus",
    "offer": "gpus",
    "offers": "gpus",
    "show-gpus": "gpus",
    "accelerators": "gpus",
    "man": "help",
}
"""The words of other tools, and ours for the same."""

GROUP_SYNONYMS: dict[str, dict[str, str]] = {
    "sgpu": SYNONYMS,
    "state": {
        "ls": "list",
        "ps": "list",
        "status": "list",
        "get": "show",
        "describe": "show",
        "move": "mv",
        "rename": "mv",
        "remove": "rm",
        "delete": "rm",
        "forget": "rm",
        "export": "pull",
        "dump": "pull",
        "force-unlock": "unlock",
    },
    "env": {
        "ls": "bases",
        "list": "bases",
        "get": "show",
        "describe": "show",
        "freeze": "requirements",
        "export": "requirements",
        "compare": "diff",
    },
    "mlflow": {"push": "sync", "upload": "sync"},
    "dev": {"start": "workspace", "serve": "workspace", "emulator": "workspace"},
}
"""By the group that they are typed in."""

_SUBJECTS = ("job", "jobs", "run", "runs")
"""What other tools put before or after the command: `sky jobs cancel`, `kubectl get jobs`."""

_ADOPT = (
    "`sgpu adopt job.NAME ID` manages a job that exists in the workspace; runs need no import: "
    "`sgpu init` writes a first file"
)
_PAGES = "`sgpu mlflow ui` shows what runs logged, and `sgpu status` where that is"
_AGAIN = (
    "`sgpu apply --rerun NAME` starts a run again, and `sgpu apply --retry-failed` all that failed"
)
_LOGIN = "sgpu uses the login of each platform, and `sgpu doctor -t TARGET` checks it"
_SHELL = (
    "sgpu opens no shell on a node: `sgpu logs NAME -f` follows a run, and `sgpu stacks NAME` "
    "shows where its ranks are"
)
OTHER_WAYS = {
    "bind": _ADOPT,
    "unbind": "`sgpu state rm job.NAME` forgets a job, which stays in the workspace",
    **dict.fromkeys(("metrics", "tensorboard", "ui", "dashboard", "board"), _PAGES),
    **dict.fromkeys(("restart", "rerun", "retry", "resume", "requeue", "taint", "replace"), _AGAIN),
    **dict.fromkeys(("login", "auth", "configure", "config", "whoami"), _LOGIN),
    **dict.fromkeys(("ssh", "shell", "console"), _SHELL),
    "rename": "`sgpu state mv run.OLD run.NEW`, or `renamed_from: OLD` in the file",
    "mv": "`sgpu state mv run.OLD run.NEW`, or `renamed_from: OLD` in the file",
    **dict.fromkeys(("pause", "suspend"), "`sgpu cancel NAME` stops a run: none can be paused"),
    "scale": "`sgpu apply --set gpus=N` changes how many GPUs a run has",
    **dict.fromkeys(("cost", "price", "budget"), "`sgpu plan` shows what runs would cost"),
    **dict.fromkeys(("unlock", "force-unlock"), "`sgpu state unlock ID`"),
    "pull": "`sgpu state pull` prints the state",
    "push": "`sgpu state push FILE` restores a state that `sgpu state pull` printed",
    "sweep": "`matrix` in the file describes a sweep: see `sgpu explain run.matrix`",
    **dict.fromkeys(("tree", "dag"), "`sgpu graph` draws which run uses which"),
    "docs": "`sgpu explain` explains codes and fields, and `sgpu help` commands",
}
"""Commands that have no counterpart here, and the way to the same end."""

PROGRAMS = ("python", "python3", "torchrun", "accelerate", "bash", "sh", "uv", "deepspeed")
"""Programs that somebody wants to run."""

GONE = {
    **dict.fromkeys(
        ("sgpu apply --logs", "sgpu run --logs", "sgpu logs --logs", "sgpu stacks --logs"),
        "it is called `--rank`",
    ),
    "sgpu plan --parallelism": "leave it out: only `sgpu apply` launches runs",
    "sgpu show --sort": "`sgpu results NAME --sort COLUMN` sorts the table",
    **dict.fromkeys(
        (
            f"sgpu doctor {option}"
            for option in [
                "--probe",
                "--nodes",
                "--base",
                "--secret",
                "--patience",
                "--limit",
                "--only",
                "-y",
            ]
        ),
        "`sgpu doctor probe` measures nodes",
    ),
    "sgpu state grants": "`Rights in PostgreSQL` in `docs/state.md` has the SQL",
}
"""Commands and options of former versions, and what to do instead."""

_FIELD = "write `--set {field}=VALUE`, or `{field}` in the file"
_RANKS = {"--gpus": "write `--gpus N`: one rank runs on each", "--set": _FIELD.format(field="gpus")}
_TYPE = {"--type": "write `--type TYPE`", "--set": _FIELD.format(field="type")}
_LIMIT = {"--set": _FIELD.format(field="timeout")}
_NODES = dict.fromkeys(
    ("--gpus", "--set"), "leave it out: `gpus` counts those of all nodes, and its `type` says how"
)
_ENV = {"--set": "write `--set env.variables.NAME=VALUE`"}
_VERBOSE = {
    "sgpu plan": "`--files` lists the files of the code, `--blame` shows where each value comes "
    "from, and `-o json` has all of the plan",
    "sgpu status": "`sgpu show NAME` has all about a run",
    "sgpu logs": "`--rank all` shows all ranks",
    "--rank": "`--rank all` shows the output of all ranks",
    "--output": "nothing is left out that `-o json` has",
}
_ALL = {
    "sgpu plan": "leave it out: a plan is of all runs, unless `--select` names some",
    "sgpu apply": "leave it out: an apply is of all runs, unless `--select` names some",
    "sgpu status": "leave it out: without a name, all runs are shown",
    "sgpu cancel": "`sgpu cancel '*'` names all runs",
    "sgpu wait": "`sgpu wait '*'` names all runs",
    "sgpu destroy": "leave it out: without a name, all runs of the file are meant",
    "--rank": "`--rank all` shows all ranks",
}
_FILE = dict.fromkeys(
    ("sgpu plan", "sgpu apply", "sgpu validate", "sgpu destroy", "sgpu graph"),
    "leave the option out: the file is an argument",
)
_WATCH = {"sgpu logs": "`sgpu logs -f` follows runs, and `sgpu top` shows what their ranks do"}
_BACKGROUND = {"--detach": "write `--detach`"}
_REFRESH = {"sgpu plan": "leave it out: each plan asks the backends"}
_APPROVED = {"--auto-approve": "write `-y`"}
_JSON = {"--output": "write `-o json`"}
OTHER_OPTIONS: dict[str, dict[str, str]] = {
    **dict.fromkeys(("--json", "--format", "--yaml"), _JSON),
    **dict.fromkeys(("--verbose", "-v", "-vv", "--debug"), _VERBOSE),
    **dict.fromkeys(("--all", "-a", "-A"), _ALL),
    **dict.fromkeys(
        (
            "-n",
            "-np",
            "--np",
            "--nproc",
            "--nproc_per_node",
            "--nproc-per-node",
            "--num_processes",
            "--num-processes",
            "--num_gpus",
            "--num-gpus",
            "--gpus-per-node",
            "--gpus_per_node",
            "--ntasks",
            "--ntasks-per-node",
            "--gres",
        ),
        _RANKS,
    ),
    **dict.fromkeys(("--nnodes", "--nodes", "-N", "--num_machines", "--num-nodes"), _NODES),
    **dict.fromkeys(("--env", "-e", "--export"), _ENV),
    **dict.fromkeys(("--config", "--file", "-f", "-c", "--config_file"), _FILE),
    **dict.fromkeys(("--background", "--no-follow", "-d", "--async"), _BACKGROUND),
    **dict.fromkeys(("--yes", "--force", "--no-confirm"), _APPROVED),
    **dict.fromkeys(("--gpus", "-g", "--gpu"), _RANKS),
    **dict.fromkeys(("--type", "--gpu-type"), _TYPE),
    "--name": {"--select": "the file names the run: change `name` in it"},
    **dict.fromkeys(("--time", "--timeout"), _LIMIT),
    "--backend": {"--target": "write `-t TARGET`: a target of the project file has a `backend`"},
    "--profile": {"--target": "write `-t TARGET`: its `backend` has the `profile`"},
    "--dry-run": {"sgpu apply": "`sgpu plan` shows what it would do", "sgpu run": "leave out `-y`"},
    **dict.fromkeys(("--watch", "-w"), _WATCH),
    "--replace": {"--rerun": "write `--rerun ADDRESS`"},
    **dict.fromkeys(("--refresh", "--refresh-only"), _REFRESH),
}
"""Options of other tools, and the hints for commands: by the command, or by an option that it
has."""


def unknown_option(path: str, option: str, options: Collection[str]) -> Usage:
    """The error for an option that a command does not have.

    Args:
        path: the command, such as `sgpu plan`.
        options: those that it has.
    """
    hints = OTHER_OPTIONS.get(option, {})
    hint = GONE.get(f"{path} {option}") or hints.get(path)
    if hint is None:
        hint = next((hint for needed, hint in hints.items() if needed in options), None)
    if hint is None and option not in OTHER_OPTIONS and (near := nearest(option, options)):
        hint = f"did you mean `{near}`? See `{path} --help`"
    return Usage(f"no such option `{option}`", hint=hint or f"see `{path} --help`")


def unknown_command(
    path: str, word: str, rest: Sequence[str], commands: Collection[str]
) -> Exception:
    """The error for a word that is no command of a group: it names ours for the same thing.

    Args:
        path: the group, such as `sgpu state`.
        rest: the words after it.
        commands: those that the group has.
    """
    group = path.rpartition(" ")[2]
    synonyms = GROUP_SYNONYMS[group]
    ours = synonyms.get(word)
    if word in _SUBJECTS and group == "sgpu":
        following, rest = (rest[0], rest[1:]) if rest else ("status", ())
        ours = following if following in commands else synonyms.get(following)
        word = f"{word} {following}" if ours else word
    elif ours is not None and rest and rest[0] in _SUBJECTS:
        word, rest = f"{word} {rest[0]}", rest[1:]
        ours = ours if rest or ours != "show" else "status"
    if ours is not None:
        # an option of another tool means something else here, or nothing
        names = rest if not any(item.startswith("-") for item in rest) else ()
        command = shlex.join((*path.split(), ours, *names))
        return Usage(
            f"no command `{word}`: sgpu calls it `{ours}`",
            hint=f"`{command}`; see `{path} {ours} --help`",
        )
    hint = GONE.get(f"{path} {word}") or (OTHER_WAYS.get(word) if group == "sgpu" else None)
    if group == "sgpu" and (word in PROGRAMS or word.endswith(".py")):
        hint = f"`sgpu run -- {shlex.join((word, *rest))}` runs that on a GPU"
    if hint:
        return Usage(f"no command `{word}`", hint=hint)
    near = nearest(word, commands)
    return Usage(
        f"no command `{word}`" + (f"; did you mean `{near}`?" if near else ""),
        hint=f"see `{path} --help`",
    )


def check_program(words: Sequence[str], is_file: Callable[[str], bool]) -> None:
    """Refuse a command that only a shell understands, for `sgpu run`.

    Raises:
        Usage: it begins with a variable, or is a line of a shell in quotes.
    """
    first, *rest = words
    variables = []
    for word in words:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", word, re.DOTALL):
            break
        variables.append(word)
    if variables and len(variables) < len(words):
        sets = [word for text in variables for word in ("--set", f"env.variables.{text}")]
        command = shlex.join(("sgpu", "run", *sets, "--", *words[len(variables) :]))
        raise Usage(f"`{first}` is a variable, not a program", hint=f"`{command}`")
    if not rest and re.search(r"[\s|&;<>]", first) and not is_file(first):
        plain = not re.search(r"[|&;<>$`*?]", first)
        command = f"sgpu run -- {first}" if plain else f"sgpu run -- sh -c {shlex.quote(first)}"
        raise Usage(
            f"`{first}` is a line for a shell, not a program and its arguments",
            hint=f"`{command}`",
        )


def options_of(command: click.Command) -> set[str]:
    """The options of a command, as they are typed."""
    return {text for item in command.params for text in (*item.opts, *item.secondary_opts)}
