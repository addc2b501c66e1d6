"""The page of JSON answers, and their table. A test compares it with what the commands print."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """`keys`: those of `data`. `stable`: whether they stay as they are, however many are added."""

    keys: tuple[str, ...]
    meaning: str
    stable: bool = True
    sometimes: tuple[str, ...] = ()


def _answer(keys: str, meaning: str, *, stable: bool = True, sometimes: str = "") -> Answer:
    return Answer(tuple(keys.split()), meaning, stable, tuple(sometimes.split()))


_PLAN = (
    "format_version tool_version target project_name git lineage serial created_at config_digest complete applyable "
    "changes checks estimate summary"
)
_SPEC = "The schema is `schemas/plan.v1.schema.json`."

ANSWERS = {
    "validate": _answer(
        "kind runs jobs included targets diagnostics",
        "`kind` is `run` or `project`; `runs` and `jobs` are addresses; `included` are files, from the folder of the root file.",
    ),
    "plan": _answer(_PLAN, f"The plan. {_SPEC} With `--blame`, each field has its `origins`.", sometimes="files"),
    "fmt": _answer(
        "files", "One object for each file: `file`, and whether it `changes`; of standard input the `text`, too.", stable=False,
    ),
    "graph": _answer(
        "nodes edges", "Of each node `address`, `kind`, `cells` and the number of its `actions`; of each edge `from`, `to` and "
        "`relation`.", stable=False,
    ),
    "apply": _answer(
        "plan", "The plan, and the runs at their end. If a run failed, `error` stands beside `data`.",
        sometimes="attempts attached runs",
    ),
    "run": _answer("plan", "As of `apply`.", sometimes="attempts attached runs"),
    "destroy": _answer("plan", "As of `apply`.", sometimes="attempts attached runs"),
    "status": _answer("project runs", "One object for each run: see [a run](#a-run).", sometimes="jobs"),
    "wait": _answer("runs", "The runs at their end: see [a run](#a-run). If one failed, `error` stands beside `data`."),
    "cancel": _answer("runs", "The runs after it: see [a run](#a-run)."),
    "show": _answer(
        "address name attempt state backend started_at ended_at exit_code ranks first_cause links spec history",
        "[A run](#a-run) with its `spec` and its `history`. Of a saved plan, the plan; of a job, the job.",
        sometimes="restart restarts",
    ),
    "results": _answer(
        "results", "`{\"rank\", \"value\"}` in the order of ranks. A value that JSON cannot hold is `{\"pickle\": path, \"repr\": "
        "text}`. Of several runs, the [table](../sweeps.md).",
    ),
    "stacks": _answer(
        "stacks", "One object for each running rank: `rank`, `pid`, and `stack`, or `null` and the `reason`.", stable=False,
    ),
    "diff": _answer(
        "before after fields files packages results metrics not_compared",
        "The two attempts, and what differs in each part: `before` and `after` of each value, the `diff` of a file.",
    ),
    "logs": _answer("lines", "One object for each line: `run`, `rank`, `stream` and `text`.", stable=False),
    "fetch": _answer("folder files bytes lacking", "Where the files are; `lacking` names those that are missing.", stable=False),
    "state list": _answer("resources", "One object for each recorded resource.", stable=False),
    "state show": _answer("address backend owner gone attempt state spec", "One recorded resource.", stable=False),
    "state pull": _answer(
        "format_version lineage serial resources intents package_lists",
        "The whole state. The schema is `schemas/state.v1.schema.json`.",
    ),
    "state mv": _answer("moved", "`{\"from\", \"to\"}`.", stable=False),
    "state rm": _answer("removed", "The address.", stable=False),
    "state log": _answer("entries", "Of each entry of a shared state `number`, `at`, `serial`, `who`, `host`, `operation`, `commit`, `tool_version` and `changes`.", stable=False),
    "state migrate": _answer("resources attempts kept", "How many were copied, and the file of the old state.", stable=False),
    "state claim": _answer("repository folder", "What the state belongs to now.", stable=False),
    "state compact": _answer("entries first proposals", "How many entries and proposals were deleted, and the oldest entry that is left; null where none was deleted.", stable=False),
    "state grants": _answer("sql", "The statements.", stable=False),
    "state unlock": _answer("unlocked", "The id of the lock.", stable=False),
    "env bases": _answer("bases", "One object for each base environment.", stable=False),
    "env show": _answer(
        "name kind digest python cuda os complete absent hashed bytes files notes packages", "The environment.", stable=False,
    ),
    "env requirements": _answer("base requirements left_out", "The text of the file.", stable=False),
    "env diff": _answer("before after facts added removed changed partial", "What differs.", stable=False),
    "schema": _answer("path type default description required children", "The field. Without PATH, all JSON Schemas by name.", stable=False),
    "explain": _answer("code severities exit_code meaning example solution since", "The code. Without CODE, `codes`: all of them.", stable=False),
    "gc": _answer("attempts bytes code_bytes environment_bytes not_found", "What was deleted, or would be.", stable=False),
    "doctor": _answer("project findings summary", "One finding for each check.", stable=False),
    "init": _answer("written name required", "The files that it wrote.", stable=False),
    "version": _answer("version", "The version.", stable=False),
    "adopt": _answer("adopted id", "The job.", stable=False),
    "mlflow sync": _answer(
        "attempt tracking_uri run_id runs metrics artifacts left", "What was pushed; `left` names what was not.", stable=False,
    ),
    "dev workspace": _answer("url root environment", "How to reach the emulated workspace. It is printed once it serves.", stable=False),
}  # fmt: skip

HEAD = """\
# JSON answers

With `-o json` a command prints one object on stdout. Progress, messages and the output of ranks go to stderr.

```json
{"v": 1, "data": {}}
{"v": 1, "error": {"code": "", "message": "", "hint": "", "retryable": false, "diagnostics": []}}
```

Both keys are there where an apply worked and a run failed. [Errors](../errors.md) lists the codes, and
[exit codes](../running.md#exit-codes) say how the command ended. A diagnostic is

```json
{"code": "", "severity": "", "summary": "", "file": "", "line": 1, "column": 1, "hint": "", "related": []}
```

Times are RFC 3339, in UTC. An amount that is unknown is `null`, never 0.

**Stable** means: in versions with the same `v`, these keys stay and mean the same. New keys may come, so ignore those that you do
not know. Answers that are not stable are for people and for bug reports.

| command | keys of `data` | stable |
|---|---|---|
"""
RUN = """\
## A run

`status`, `wait`, `cancel`, `show` and `apply` describe a run by the same object:

| key | value |
|---|---|
| `address`, `name`, `attempt` | which attempt it is |
| `state` | `queued`, `staging`, `starting`, `running`, `stopping`, `succeeded`, `failed`, `cancelled` or `lost` |
| `backend` | where its ranks run |
| `started_at`, `ended_at` | times, or `null` |
| `exit_code` | of the run, or `null` |
| `ranks` | of each rank `rank`, `node_rank`, `state`, `exit_code` and `signal` |
| `first_cause` | the failure that happened first, with its `class`, or `null`: see [Failures](../running.md#failures) |
| `links` | folders and pages of the attempt |
"""


def page() -> str:
    rows = [
        f"| `sgpu {command}` | {_keys(answer)} {answer.meaning} | {'yes' if answer.stable else 'no'} |"
        for command, answer in ANSWERS.items()
    ]
    return HEAD + "\n".join(rows) + "\n\n" + RUN


def _keys(answer: Answer) -> str:
    keys = ", ".join(f"`{key}`" for key in answer.keys)
    more = ", ".join(f"`{key}`" for key in answer.sometimes)
    return ". ".join(filter(None, (keys, f"Sometimes {more}" if more else ""))) + "."
