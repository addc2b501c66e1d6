"""The page of environment variables, and their table."""

from dataclasses import dataclass
from enum import StrEnum


class Reader(StrEnum):
    RANKS = "Ranks find"
    TOLD = "The command of on_finish finds"
    COMMANDS = "Commands and decorated functions read"
    CALLS = "Decorated functions read"
    INTERNAL = "Of sgpu's own processes"


@dataclass(frozen=True)
class Variable:
    name: str
    reader: Reader
    meaning: str


_RANKS, _TOLD, _COMMANDS, _CALLS, _INTERNAL = Reader

VARIABLES = (
    Variable("SGPU_ADDRESS", _RANKS, 'The address of the run, such as `run.train` or `run.sweep["lr=0.1"]`.'),
    Variable("SGPU_RUN_NAME", _RANKS, "The name of the run, without its kind."),
    Variable("SGPU_ATTEMPT", _RANKS, "The number of the attempt: 8 for `train#8`."),
    Variable(
        "SGPU_OUTPUT_DIR", _RANKS,
        "The folder for files to keep. `sgpu fetch` downloads it from other machines. Ranks of one node share it, and a "
        "`retry` keeps it; a new attempt has a new one.",
    ),
    Variable(
        "SGPU_PREVIOUS_OUTPUT_DIR", _RANKS,
        "With `resume: auto`, the output folder of the newest earlier attempt that left output. Not set if there is none. See "
        "[Going on where a run stopped](../running.md#going-on-where-a-run-stopped).",
    ),
    Variable(
        "SGPU_PROJECT_DIR", _RANKS,
        "The project folder, only on this machine. Ranks work in a copy of the code, and find the other files of the project here.",
    ),
    Variable("SGPU_RUN_DIR", _RANKS, "The folder of the attempt: see [Files](files.md)."),
    Variable(
        "SGPU_SITE", _RANKS,
        "A folder on `sys.path` for packages of only this attempt: `pip install --target \"$SGPU_SITE\" PACKAGE`. See "
        "[What ranks find](../environments.md#what-ranks-find).",
    ),
    Variable(
        "SGPU_STATE", _TOLD,
        "How the attempt ended: `succeeded`, `failed`, `cancelled` or `lost`. See "
        "[Notifications](../how-to/notifications.md#a-command).",
    ),
    Variable("SGPU_CLASS", _TOLD, "The class of the failure, such as `oom`; empty if there was none."),
    Variable("SGPU_EXIT_CODE", _TOLD, "The exit code of the run."),
    Variable(
        "SGPU_TARGET", _COMMANDS,
        "The target, if neither `-t` nor `target=` of the decorator names one. `default` means none, as with `-t`.",
    ),
    Variable(
        "SGPU_VAR_<name>", _COMMANDS,
        "The value of the variable `name` of a file, spelt as there: `SGPU_VAR_lr=1e-4`. See "
        "[Variables](../yaml.md#variables).",
    ),
    Variable("SGPU_PROJECT", _CALLS, "The project folder of calls, if `project=` of the decorator names none."),
    Variable(
        "SGPU_COOKIE", _INTERNAL,
        "Marks each process that a rank starts, so that none of them outlives the attempt. Leave it as it is.",
    ),
    Variable("SGPU_ASKED_AT", _INTERNAL, "The address at which a rank tells its monitor what it does."),
    Variable("SGPU_READY_FD", _INTERNAL, "The descriptor by which a rank says that its imports are done."),
    Variable("SGPU_ENVIRON_FD", _INTERNAL, "The descriptor by which a process gets values of secrets."),
    Variable("SGPU_REDACT", _INTERNAL, "The values that a rank masks in its log, with `logs: {redact: true}`."),
    Variable("SGPU_REMOVED", _INTERNAL, "Variables that the driver of a Ray cluster does not get."),
    Variable("SGPU_RESTART", _INTERNAL, "The number of restarts before a tracker started."),
    Variable("SGPU_TRACKER", _INTERNAL, "Marks the tracker of an attempt, by the token of its launch."),
    Variable("SGPU_WARM_FD", _INTERNAL, "The descriptor by which the warm parent is told to fork ranks."),
    Variable("SGPU_WARM_DIR", _INTERNAL, "The folder of logs of the warm parent, or of the warm server of calls."),
    Variable("SGPU_WARM_KEPT", _INTERNAL, "The facts about its caller that the warm server of calls needs."),
    Variable("SGPU_RAY_FD", _INTERNAL, "The descriptor by which the parent of Ray's processes is told to stop them."),
    Variable("SGPU_RAY_METRICS", _INTERNAL, "Marks the process that reads the metrics of a Ray cluster."),
    Variable("SGPU_WEBHOOK_URL", _INTERNAL, "The address of the webhook of a run, on its nodes. Ranks do not get it."),
    Variable("SGPU_WEBHOOK_KEY", _INTERNAL, "The key of the webhook's signature, likewise."),
    Variable("SGPU_WORKSPACE_NODE", _INTERNAL, "Marks the processes of a node of the emulated workspace."),
)  # fmt: skip

HEAD = """\
# Environment variables

Ranks also have the variables of torchrun and of MLflow: see [Running](../running.md#what-a-rank-finds) and
[Tracking](../tracking.md#what-ranks-see). A run cannot set a name that begins with `SGPU_`: `env.variables` refuses it.
`XDG_STATE_HOME`, `XDG_DATA_HOME` and `XDG_CACHE_HOME` move the folders of state and shared files: see [Files](files.md).
`NO_COLOR` turns colours off.
"""


def page() -> str:
    parts = [HEAD]
    for reader in (Reader.RANKS, Reader.TOLD, Reader.COMMANDS, Reader.CALLS):
        parts.append(f"## {reader}\n")
        for variable in VARIABLES:
            if variable.reader is reader:
                parts += [f"### `{variable.name}`\n", f"{variable.meaning}\n"]
    parts += [
        f"## {Reader.INTERNAL}\n",
        "Do not read or set these. They may change without notice.\n",
    ]
    parts += ["| variable | meaning |\n|---|---|"]
    parts += [f"| `{one.name}` | {one.meaning} |" for one in VARIABLES if one.reader is _INTERNAL]
    return "\n".join(parts) + "\n"
