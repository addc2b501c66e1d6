"""The page of JSON answers, and their table. A test compares it with what the commands print."""

from dataclasses import dataclass, field, fields

from sgpu_decl.config.output_schemas import state_schema
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.attempt_view import RankView
from sgpu_decl.views.gc_text import WHY_KEPT


@dataclass(frozen=True)
class Answer:
    """`keys`: those of `data`. `stable`: whether they stay as they are, however many are added.
    `inside`: which of `OBJECTS` the objects in it are, by key; `key[]` stands for those of a list.
    What is not named there is the user's own, or has a schema."""

    keys: tuple[str, ...]
    meaning: str
    stable: bool = True
    sometimes: tuple[str, ...] = ()
    inside: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Object:
    """An object inside of answers: what its keys mean. Those of `sometimes` may be missing."""

    keys: dict[str, str]
    sometimes: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)


def _answer(
    keys: str, meaning: str, *, stable: bool = True, sometimes: str = "", inside: str = ""
) -> Answer:
    objects = dict(item.split("=") for item in inside.split())
    named = {key: name.replace("-", " ") for key, name in objects.items()}
    return Answer(tuple(keys.split()), meaning, stable, tuple(sometimes.split()), named)


_PLAN = (
    "format_version tool_version target project_name git lineage serial created_at config_digest complete applyable platforms "
    "changes checks estimate summary"
)
_SPEC = "The schema is `schemas/plan.v1.schema.json`."

ANSWERS = {
    "validate": _answer(
        "kind runs jobs included targets resolved diagnostics",
        "`kind` is `run` or `project`; `runs` and `jobs` are addresses; `included` are files, from the folder of the root file.",
        inside="diagnostics[]=A-diagnostic resolved=A-resolved-file",
    ),
    "plan": _answer(_PLAN, f"The plan. {_SPEC} With `--blame`, each field has its `origins`.", sometimes="files", inside="files[]=Files-of-a-plan"),
    "fmt": _answer(
        "files", "One object for each file: `file`, and whether it `changes`; for standard input, also the `text`.", stable=False, inside="files[]=A-formatted-file",
    ),
    "graph": _answer(
        "nodes edges", "Each node has `address`, `kind`, `cells` and the number of its `actions`; each edge has `from`, `to` and "
        "`relation`.", stable=False, inside="nodes[]=A-node-of-a-graph edges[]=An-edge-of-a-graph",
    ),
    "apply": _answer(
        "plan", "The plan, and the runs at their end. If a run failed, `error` is beside `data`.",
        sometimes="attempts attached runs", inside="runs[]=A-run",
    ),
    "run": _answer("plan", "As of `apply`.", sometimes="attempts attached runs", inside="runs[]=A-run"),
    "destroy": _answer("plan", "As of `apply`.", sometimes="attempts attached runs", inside="runs[]=A-run"),
    "status": _answer("project runs", "One object for each run: see [a run](#a-run).", sometimes="jobs", inside="runs[]=A-run"),
    "top": _answer(
        "project runs", "The active runs, or the named ones: each is [a run](#a-run) with its `activity`.", inside="runs[]=A-watched-run",
    ),
    "wait": _answer("runs", "The runs at their end: see [a run](#a-run). If one failed, `error` is beside `data`.", inside="runs[]=A-run"),
    "cancel": _answer("runs", "The runs after the cancel: see [a run](#a-run). Of jobs, the addresses of those that had an active launch (`jobs`).", sometimes="jobs", inside="runs[]=A-run"),
    "show": _answer(
        "address name attempt state backend started_at ended_at exit_code ranks first_cause links spec history",
        "[A run](#a-run) with its `spec` and its `history`. For a saved plan, the plan; for a job, the job.",
        sometimes="restart restarts waiting_for ray working_files metrics metrics_problem usage idle notices not_responding_since processes_left unavailable way_out unknown_since hidden_from overdue runs", inside="ranks[]=A-rank first_cause=A-first-cause restarts[]=A-restart ray=A-Ray-cluster working_files=Working-files notices[]=A-notice usage=A-use idle=A-lack-of-use history[]=An-attempt-of-the-history runs[]=A-row-of-a-table",
    ),
    "results": _answer(
        "results", "`{\"rank\", \"value\"}` in the order of ranks. A value that JSON cannot hold is `{\"pickle\": path, \"repr\": "
        "text}`. For several runs, `runs`: the rows of the [table](../sweeps.md).",
        sometimes="runs", inside="results[]=A-result runs[]=A-row-of-a-table",
    ),
    "stacks": _answer(
        "stacks groups",
        "`stacks`: one object for each running rank: `rank`, `pid`, and `stack`, or `null` and the `reason`. `groups`: which ranks have equal stacks.",
        stable=False, inside="stacks[]=A-stack groups[]=Ranks-with-equal-stacks",
    ),
    "gpus": _answer(
        "gpus unavailable",
        "One object for each type of GPU at each place; `unavailable`: why a place could not be asked.",
        stable=False, inside="gpus[]=GPUs-of-a-place",
    ),
    "diff": _answer(
        "before after fields files packages results metrics not_compared",
        "The two attempts, and the differences of each part: `before` and `after` of each value, and the `diff` of a file.", inside="before=An-attempt after=An-attempt fields[]=A-changed-field files[]=A-changed-file packages[]=A-changed-package results[]=A-changed-value metrics[]=A-changed-value",
    ),
    "logs": _answer("lines", "One object for each line: `run`, `rank`, `stream` and `text`. For a job instead, as of `sgpu start`: its last launch.", stable=False, sometimes="address launch tasks", inside="lines[]=A-line-of-a-log"),
    "fetch": _answer("folder files bytes lacking", "The folder of the files; `lacking` names the missing files.", stable=False),
    "import": _answer("tool file written text fields defaults findings", "The tool of the file, and its YAML (`text`), which `written` names if it is a file. `fields`: what became of each field of the file. `defaults`: what the tool does where the file says nothing, and sgpu would do otherwise. `findings`: warnings about the YAML.", stable=False, inside="fields[]=An-imported-field defaults[]=A-default-of-another-tool findings[]=A-diagnostic"),
    "bundle render": _answer("file jobs changed findings", "The file that has the jobs, the names of the jobs, and warnings. `changed` says whether the command changed the file or, with `--check`, would change it.", stable=False, inside="findings[]=A-diagnostic"),
    "state list": _answer("resources", "One object for each recorded resource.", stable=False, inside="resources[]=A-recorded-resource"),
    "state show": _answer("address backend owner gone attempt state spec", "One recorded resource.", stable=False),
    "state pull": _answer(
        "format_version lineage serial resources intents package_lists",
        "The whole state. The schema is `schemas/state.v1.schema.json`.",
    ),
    "state mv": _answer("moved", "`{\"from\", \"to\"}`.", stable=False, inside="moved=A-move"),
    "state rm": _answer("removed", "The address.", stable=False),
    "state log": _answer("entries", "One object for each entry of a shared state.", stable=False, inside="entries[]=An-entry-of-a-shared-state"),
    "state migrate": _answer("resources attempts kept", "The numbers of copied resources and attempts, and the file of the old state.", stable=False),
    "state push": _answer("resources attempts", "The numbers of recorded resources and attempts.", stable=False),
    "state claim": _answer("repository folder", "The repository and the folder that the state belongs to now.", stable=False),
    "state compact": _answer("entries first proposals", "The numbers of deleted entries and proposals, and the oldest entry that is left; null if none was deleted.", stable=False),
    "state unlock": _answer("unlocked", "The id of the lock.", stable=False),
    "env bases": _answer("bases", "One object for each base environment.", stable=False, inside="bases[]=A-base-environment"),
    "env show": _answer(
        "name kind digest python cuda os complete absent hashed bytes files notes packages", "The environment.", stable=False, inside="packages[]=A-package",
    ),
    "env requirements": _answer("base requirements left_out", "The text of the file.", stable=False),
    "env diff": _answer("before after facts added removed changed partial", "The differences.", stable=False),
    "schema": _answer("run project plan state events stream", "The JSON Schemas by name; with `--write`, `written`: the folder.", stable=False),
    "explain": _answer(
        "", "The code, the kind of failure, or the field. Without a name, `codes` and `kinds`: all of them.", stable=False,
        sometimes="code family severities exit_code meaning example solution path type default description required children codes kinds kind blame source", inside="children[]=A-field",
    ),
    "gc": _answer(
        "attempts bytes code_bytes environment_bytes freed kept not_found problems", "The deleted attempts and bytes, or with `--dry-run` those that gc would delete; `kept` are attempts that are old enough but stay.", stable=False,
        inside="freed[]=An-attempt-that-goes kept[]=An-attempt-that-stays not_found[]=An-owner-that-is-not-found problems[]=A-thing-that-gc-could-not-do",
    ),
    "doctor": _answer("project findings summary", "One finding for each check.", stable=False, inside="findings[]=A-check summary=Counted-checks"),
    "doctor probe": _answer("project findings summary", "As of `doctor`.", stable=False, inside="findings[]=A-check summary=Counted-checks"),
    "init": _answer("written name required", "The files that it wrote.", stable=False),
    "version": _answer("version", "The version.", stable=False),
    "start": _answer(
        "address launch tasks", "The launch, and its tasks in the order in which they start. With `--wait`, if the launch did not succeed, `error` is beside `data`.",
        stable=False, inside="launch=A-launch-of-a-job tasks[]=A-task-of-a-launch",
    ),
    "adopt": _answer("adopted id", "The job. With `--write` instead: the file of the job, the paths of settings that are not in it (`lost`), and all written files.", stable=False, sometimes="written lost files"),
    "mlflow sync": _answer(
        "attempt tracking_uri run_id runs metrics artifacts left", "The uploaded values; `left` names the others.", stable=False,
    ),
    "dev workspace": _answer("url root environment", "The address of the emulated workspace. The command prints it once the workspace serves.", stable=False),
}  # fmt: skip

HEAD = """\
# JSON answers

With `-o json` a command prints one object on stdout. Progress, messages and the output of ranks go to stderr.

```json
{"v": 1, "data": {}}
{"v": 1, "error": {"code": "", "message": "", "hint": "", "retryable": false, "diagnostics": []}}
```

If an apply worked and a run failed, the object has both keys. `sgpu explain` lists the codes, and
the [exit code](../running.md#exit-codes) gives the outcome of the command. A diagnostic is

```json
{"code": "", "severity": "", "summary": "", "file": "", "line": 1, "column": 1, "hint": "", "related": []}
```

Times are RFC 3339, in UTC. An amount that is unknown is `null`, never 0.

**Stable** means: versions with the same `v` keep these keys and their meaning. They may add keys, so ignore keys that you do
not know. Answers that are not stable are for people and for bug reports.

| command | keys of `data` | stable |
|---|---|---|
"""
_ATTEMPT_KEYS = {
    "address": "such as `run.train`",
    "name": "the address without its kind: `train`",
    "attempt": "the number, such as 8 for `train#8`",
    "state": ", ".join(f"`{state}`" for state in AttemptState),
    "started_at": "a time, or `null`",
    "ended_at": "a time, or `null`",
}
_RANK_MEANINGS = {
    "rank": "its number",
    "node_rank": "the number of its node, or `null`",
    "state": "`queued`, `starting`, `running`, `succeeded`, `failed`, or `stopped` with the others",
    "exit_code": "or `null`",
    "signal": "the signal that ended it, such as `SIGKILL`, or `null`",
    "dropped_bytes": "bytes of its output that are missing because the disk was full",
}
_RANK_KEYS = {one.name: _RANK_MEANINGS[one.name] for one in fields(RankView)}
_RECORDED = state_schema()["properties"]["resources"]["items"]["properties"]["attempts"]["items"]
STATE_ALONE = frozenset({"spec", "formerly"})  # of the recorded keys, those that only a state has
_RECORDED_MEANINGS = {
    **_ATTEMPT_KEYS,
    "token": "",
    "backend": "where its ranks ran",
    "fingerprint": "a hash that identifies the computation",
    "code_digest": "of the code, or `null`",
    "created_at": "the time of the decision",
    "exit_code": "or `null`",
    "class": "of the failure, or `null`: see [Failures](../running.md#failures)",
}
_VALUES = {"before": "its value, or `null`", "after": "its value, or `null`"}

OBJECTS = {
    "A run": Object(
        {
            **_ATTEMPT_KEYS,
            "backend": "where its ranks run",
            "exit_code": "of the run, or `null`",
            "ranks": "[ranks](#a-rank), in their order",
            "first_cause": "[the failure](#a-first-cause) that happened first, or `null`",
            "restart": "the number of restarts",
            "restarts": "the newest [restarts](#a-restart)",
            "links": "its links by name: `folder`, `output`, `mlflow`, and those of the backend",
        },
        {
            "waiting_for": "the reason of its wait: `gpus`, `max_parallel`, `earlier attempts`, `preflight`, `backoff`, or a text",
            "ray": "[its Ray cluster](#a-ray-cluster)",
            "working_files": "[files](#working-files) that ranks left outside of `SGPU_OUTPUT_DIR`",
            "metrics": "the last values in `metrics.json` of its output by name, once it has ended; `null` for one that is not finite",
            "metrics_problem": "the part of `metrics.json` that could not be read",
            "usage": "[what it used](#a-use), once that was measured",
            "idle": "[how little it uses](#a-lack-of-use), while that is less than `idle` allows",
            "notices": "[who was told](#a-notice) of its end by `on_finish`; only in `sgpu show`, and for runs on other machines",
            "not_responding_since": "the time at which its supervisor stopped answering",
            "processes_left": "pids of processes that nobody supervises",
            "unavailable": "why its backend cannot be asked; the other values are the recorded ones",
            "way_out": "the next step, beside `unavailable`",
            "unknown_since": "the time of its backend's last answer, beside `unavailable`, if known",
            "hidden_from": "the user from whom its platform hides it",
            "skipped": "true if it never started, because a run that it comes after has not succeeded; its state is `failed`",
            "overdue": "true if it must have ended with an unknown outcome: its state is `lost`, but it may have succeeded",
        },
        {
            "ranks[]": "A rank", "first_cause": "A first cause", "restarts[]": "A restart", "ray": "A Ray cluster",
            "working_files": "Working files", "notices[]": "A notice", "usage": "A use", "idle": "A lack of use",
        },
    ),
    "A rank": Object(
        {key: text for key, text in _RANK_KEYS.items() if key != "dropped_bytes"},
        {"dropped_bytes": _RANK_KEYS["dropped_bytes"]},
    ),
    "A first cause": Object(
        {
            "rank": "the rank that caused it, or `null`",
            "class": "see [Failures](../running.md#failures), or `null`",
            "kind": "one of [the kinds that sgpu knows](../failures.md), or `null`",
            "summary": "one line",
            "traceback": "a text, or `null`",
            "simultaneous": "the other ranks that failed within 5 ms",
        },
        {
            "stacks": "`rank` and `file` of each rank with a stack",
            "memory": "the users of the memory, if it ran out",
            "code": "`copy` is the folder with the code of the attempt, `changed` are the files that differ now",
            "missing": "`path` is a file that the rank did not find, `reason` and `hint` say why",
            "explanation": "what the kind means, if there is one",
        },
        {"stacks[]": "A file with a stack", "code": "A copy of the code", "missing": "A missing file", "explanation": "An explanation of a failure"},
    ),
    "An explanation of a failure": Object(
        {
            "blame": "`error` if the code or its input is to blame, `infra` if the machine or the platform is, `null` if that is not certain",
            "meaning": "what happened, with the numbers that the library printed",
            "next_step": "what to do",
            "source": "a URL that explains it",
        }
    ),
    "A file with a stack": Object({"rank": "its number", "file": "on this machine"}),
    "A copy of the code": Object({"copy": "a folder", "changed": "files that differ now"}),
    "A missing file": Object({"path": "the path that the rank opened", "reason": "why the file is missing", "hint": "what to do"}),
    "A restart": Object(
        {
            "restart": "its number, from 1",
            "at": "the time when the ranks ended",
            "starts_at": "the time when they start again",
            "rank": "the rank that caused it, or `null`",
            "class": "see [Failures](../running.md#failures)",
            "kind": "one of [the kinds that sgpu knows](../failures.md), or `null`",
            "summary": "one line",
        }
    ),
    "A use": Object(
        {
            "seconds": "how long its nodes were measured",
            "nodes": "how many nodes were measured",
            "processors": "how many processors its ranks kept busy together: the mean; or `null`",
            "processors_there": "the processors that they could use, or `null`",
            "memory": "MiB that the ranks of one node had in memory together, at most; or `null`",
            "memory_there": "MiB of memory of that node, or `null`",
            "gpus": "how many GPUs were measured",
            "gpu_name": "what the driver calls them, or `null`",
            "gpu_percent": "the share of time in which a GPU ran a kernel: the mean, in percent; or `null`",
            "gpus_unused": "how many of the GPUs never ran a kernel",
            "gpu_memory": "MiB that were used of one GPU, at most; or `null`",
            "gpu_memory_there": "MiB of memory of that GPU, or `null`",
        }
    ),
    "A lack of use": Object(
        {
            "of": "`gpus`, or `processors` where no GPU could be measured",
            "count": "how many GPUs, or ranks",
            "percent": "the mean use of the one that was used most",
            "limit": "`idle.below`, in percent",
            "seconds": "`idle.for`",
        }
    ),
    "A Ray cluster": Object(
        {"version": "of Ray", "nodes": "how many", "dashboard": "an address, or `null`", "token_file": "a file, or `null`", "host": "the node of both, or `null`"}
    ),
    "A notice": Object(
        {
            "way": "`command` or `webhook`",
            "ok": "whether the command succeeded, or the server took it",
            "tries": "how often the server was asked",
            "summary": "one line",
            "at": "a time",
        }
    ),
    "Working files": Object({"names": "some of them", "count": "their number"}),
    "An attempt of the history": Object(
        {
            **{
                key: schema.get("description") or _RECORDED_MEANINGS.get(key, "or `null`")
                for key, schema in _RECORDED["properties"].items()
                if key not in STATE_ALONE and key in _RECORDED["required"]
            },
            "restart": "the number of restarts",
            "changed": "the fields that differ from the attempt before; `code`, `environment` and `packages` mean changed content",
        },
        {
            key: schema["description"]
            for key, schema in _RECORDED["properties"].items()
            if key not in _RECORDED["required"]
        },
    ),
    "An attempt": Object(_ATTEMPT_KEYS),
    "A result": Object(
        {"rank": "its number", "value": "its return value"},
        {"secrets": "the names of the secrets that were masked in it"},
    ),
    "A row of a table": Object(
        {
            **_ATTEMPT_KEYS,
            "seconds": "from its start until its end, or until now; or `null`",
            "axes": "the values of its matrix, by axis; empty outside of a matrix",
            "returned": "the return value of the lowest rank that has one, by key; a value that is not a mapping is under `value`",
            "unread": "why the return value could not be read, or `null`; `returned` is then empty",
            "metrics": "the last value of each MLflow metric, by name; `null` is NaN or infinite",
            "secrets": "the names of the secrets that were masked in it",
        }
    ),
    "A diagnostic": Object(
        {
            "code": "`sgpu explain` explains it", "severity": "`error`, `warning` or `info`", "summary": "one line",
            "file": "or `null`", "line": "or `null`", "column": "or `null`", "hint": "what to do, or `null`",
            "related": "other places: `file`, `line`, `column` and `note`",
        },
        inside={"related[]": "A related place"},
    ),
    "An imported field": Object(
        {
            "field": "its path in the file", "fate": "`carried`, `changed` or `lost`", "to": "the paths of our fields that say it",
            "note": "what is different, or why it is lost; or `null`", "hint": "what to do, or `null`",
            "file": "that has it", "line": "from 1", "column": "from 1",
        }
    ),
    "A default of another tool": Object(
        {"field": "the path of the field that the file does not have", "to": "the paths of our fields that say it", "note": "what the tool does, or `null`"}
    ),
    "A related place": Object({"file": "a path", "line": "from 1", "column": "from 1", "note": "a description"}),
    "A changed field": Object({"path": "such as `args.lr`", **_VALUES}),
    "A changed file": Object(
        {
            "path": "in the code", "change": "`added`, `removed` or `changed`", "diff": "a unified diff, or `null`",
            "note": "why there is no diff, or `null`",
        }
    ),
    "A changed package": Object({"name": "of the package", **_VALUES}),
    "A changed value": Object({"name": "of the result or the metric", **_VALUES}),
    "A resolved file": Object(
        {
            "project": "its name, or `null`", "target": "its name, or `null`", "mode": "`production` or `development`",
            "runs": "one object for each run", "jobs": "one object for each job",
            "left_out": "the addresses of runs and jobs that the target leaves out",
        },
        inside={"runs[]": "A resolved run or job", "jobs[]": "A resolved run or job"},
    ),
    "A resolved run or job": Object(
        {
            "address": "such as `run.train`",
            "spec": "its fields, with all values for the target: references are filled in, `defaults`, `presets` and overrides are merged, and "
            "fields with the default of sgpu are left out",
        }
    ),
    "A formatted file": Object({"file": "a path", "changes": "whether the format changes it"}, {"text": "of standard input"}),
    "A node of a graph": Object(
        {"address": "such as `run.train`", "kind": "`run`, `job` or `environment`", "cells": "the number of runs of a matrix"},
        {"actions": "the number of each action, with `--plan`"},
    ),
    "An edge of a graph": Object({"from": "an address", "to": "an address", "relation": "how `from` uses `to`"}),
    "Files of a plan": Object(
        {
            "root": "the folder", "digest": "of the code", "travels": "files: `path`, `bytes` and `link`",
            "counted": "the files that count, for each way in which runs use the code",
            "kept_back": "excluded files: `path`, and the `rule`, with its `pattern`, `file` and `line`",
        },
        inside={
            "travels[]": "A file that travels", "counted[]": "What counts", "kept_back[]": "A file that is kept back",
        },
    ),
    "A file that travels": Object({"path": "in the code", "bytes": "its size", "link": "its target, or `null`"}),
    "What counts": Object(
        {
            "run": "the first such run", "uncounted": "the files that do not count, each with its kind",
            "reached": "files of such a kind that count", "everything": "why all files count, or `null`",
        },
        inside={"uncounted[]": "A file with a reason", "reached[]": "A file with a reason"},
    ),
    "A file with a reason": Object({"path": "in the code", "why": "a text"}),
    "A file that is kept back": Object(
        {
            "path": "in the folder", "rule": "the rule that excludes it", "pattern": "the pattern that excludes it, or `null`", "file": "with the pattern, or `null`",
            "line": "of the pattern, or `null`",
        }
    ),
    "A stack": Object({"rank": "its number", "pid": "of its process", "stack": "a text, or `null`", "reason": "why there is no stack"}),
    "Ranks with equal stacks": Object(
        {
            "ranks": "their numbers", "differs": "whether more than half of all ranks share another stack",
            "at": "the outermost line of these stacks that differs from them, or `null`",
        }
    ),
    "GPUs of a place": Object(
        {
            "type": "what `type` in a run names, or the name that the driver has for it", "gpus": "the numbers that a run can have, in words",
            "free": "how many nobody uses now, or `null`", "total": "how many there are, or `null`", "where": "the place in words",
            "note": "what else to know, or `null`",
        }
    ),
    "A line of a log": Object({"run": "`train#8`", "rank": "its number", "stream": "`stdout` or `stderr`", "text": "the line"}),
    "A recorded resource": Object(
        {
            "address": "such as `run.train`", "backend": "its name", "owner": "the file that declares it",
            "gone": "whether it was destroyed or removed", "attempt": "the newest, or `null`", "state": "of that attempt, or `null`",
            "spec": "the config that was applied last",
        }
    ),
    "A move": Object({"from": "an address", "to": "an address"}),
    "An entry of a shared state": Object(
        dict.fromkeys(("number", "at", "serial", "who", "host", "operation", "commit", "tool_version", "changes"), "")
        | {
            "principal": "of an apply: the user or service principal of the platform, or `null`",
            "proposals": "of an apply with `--reviewed`: the ids of the proposals that covered it",
            "links": "of the same apply: the links of their pull requests",
        }
    ),
    "A base environment": Object(
        dict.fromkeys(("name", "title", "python", "cuda", "os", "databricks_connect", "packages", "complete", "platform", "released", "source"), ""),
        inside={"platform": "A platform of a base", "source": "A source of a base"},
    ),
    "A platform of a base": Object({"base_environment": "", "environment_version": "", "notebook": ""}),
    "A source of a base": Object({"title": "", "url": "", "as_of": "the date of the page"}),
    "A package": Object({"name": "", "version": ""}),
    "A check": Object({"check": "its name", "verdict": "`ok`, `warn` or `fail`", "text": "the finding", "hint": "or `null`"}),
    "A launch of a job": Object(
        {"id": "of the launch on its platform", "state": "as of a run", "started_at": "or `null`", "ended_at": "or `null`", "link": ""}
    ),
    "A task of a launch": Object(
        {
            "name": "", "state": "as of a run", "skipped": "whether it did not run, because of how the tasks before it ended", "started_at": "or `null`",
            "ended_at": "or `null`", "link": "", "output": "the end of what it printed, the value that a notebook ended with, or why it failed; `null` until the launch has ended",
            "first_cause": "of a run, [the failure](#a-first-cause) that happened first, or `null`", "results": "of a run, what ranks returned",
        },
        inside={"first_cause": "A first cause", "results[]": "A result"},
    ),
    "Counted checks": Object({"ok": "", "warn": "", "fail": ""}),
    "A field": Object(
        dict.fromkeys(("path", "type", "default", "description", "required", "children"), ""), inside={"children[]": "A field"}
    ),
    "An attempt that goes": Object({"attempt": "written `train#8`", "bytes": "its size, on this machine and elsewhere"}),
    "An attempt that stays": Object({
        "attempt": "written `train#8`",
        "reason": "; ".join(f"`{reason}`: {words}" for reason, words in WHY_KEPT.items()),
    }),
    "An owner that is not found": Object(
        {"path": "a project or a saved plan", "record": "the record that keeps its files", "kept_until": "a time, or `null`"}
    ),
    "A thing that gc could not do": Object({"summary": "the thing that gc could not read or delete, and why", "hint": "the next step, or `null`"}),
    "The activity of a run": Object(
        {
            "gpus": "the GPUs that it holds; 0 on CPUs",
            "gpu_type": "its `type`",
            "gpu_hours": "what it took so far, or `null`",
            "limit_seconds": "its `timeout`, or `null`",
            "measured_at": "the time of the last measurement, or `null`",
            "ranks": "[what each rank does](#the-activity-of-a-rank), in their order; `null` if its backend does not tell",
        },
        inside={"ranks[]": "The activity of a rank"},
    ),
    "The activity of a rank": Object(
        {
            "rank": "its number",
            "step": "the step that it reported itself, or `null`",
            "cpu": "in percent of a core, with all its processes, or `null`",
            "memory": "in MiB, or `null`",
            "gpu": "the use of its GPUs in percent, or `null`",
            "gpu_memory": "the used memory of its GPUs in MiB, or `null`",
            "gpu_room": "the memory of its GPUs in MiB, or `null`",
            "last_line": "the last line of its log, or `null`",
            "written_at": "the time when it last wrote to its log, or `null`",
            "differs": "how it clearly differs from the other ranks, or `null`",
        }
    ),
}  # fmt: skip
OBJECTS["A watched run"] = Object(
    {**OBJECTS["A run"].keys, "activity": "[what its ranks do](#the-activity-of-a-run)"},
    OBJECTS["A run"].sometimes,
    {**OBJECTS["A run"].inside, "activity": "The activity of a run"},
)

OBJECTS_HEAD = """\
## Objects inside of answers

An object is as stable as the answer that contains it. Plans and states have their own schemas. The content of `spec`, `value`,
`axes`, `returned` and `metrics` is yours.
"""


def page() -> str:
    rows = [
        f"| `sgpu {command}` | {_keys(answer)} {answer.meaning} | {'yes' if answer.stable else 'no'} |"
        for command, answer in ANSWERS.items()
    ]
    objects = [line for name, value in OBJECTS.items() for line in _object(name, value)]
    return HEAD + "\n".join(rows) + "\n\n" + OBJECTS_HEAD + "\n".join(objects)


def _object(name: str, value: Object) -> list[str]:
    """A heading, where it stands, and a table of its keys."""
    where = [
        f"`{key}` of `sgpu {command}`"
        for command, answer in ANSWERS.items()
        for key, inner in answer.inside.items()
        if inner == name
    ]
    where += [
        f"`{key}` of [{outer[0].lower()}{outer[1:]}](#{_anchor(outer)})"
        for outer, other in OBJECTS.items()
        for key, inner in other.inside.items()
        if inner == name
    ]
    lines = ["", f"### {name}", "", f"{', '.join(where)}.", "", "| key | value |", "|---|---|"]
    lines += [f"| `{key}` | {meaning} |" for key, meaning in value.keys.items()]
    lines += [f"| sometimes `{key}` | {meaning} |" for key, meaning in value.sometimes.items()]
    return lines


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def _keys(answer: Answer) -> str:
    keys = ", ".join(f"`{key}`" for key in answer.keys)
    more = ", ".join(f"`{key}`" for key in answer.sometimes)
    return ". ".join(filter(None, (keys, f"Sometimes {more}" if more else ""))) + "."
