"""A task of dstack.

Sources: https://dstack.ai/docs/reference/dstack.yml/task, and `TaskConfiguration`, `ProfileParams`
and `ResourcesSpec` below `dstack/_internal/core/models` in https://pypi.org/project/dstack/0.22.5/;
the variables of its nodes: https://dstack.ai/docs/reference/environment-variables
"""

import re

from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.importing.command_script import Shell, command_of, packages
from sgpu_decl.importing.field_rules import (
    NO_CODE,
    as_text,
    left,
    length,
    name_of,
    name_of_file,
    nodes_of,
    says_nothing,
)
from sgpu_decl.importing.foreign_file import ForeignField, ForeignFile, at, text_at
from sgpu_decl.importing.foreign_tool import ForeignTool, Rule
from sgpu_decl.importing.translation import Keys, Translation, carried, changed, lost, put
from sgpu_decl.model.jsonable import Json
from sgpu_decl.text.yaml_nodes import Scalar, Sequence, is_nothing

_SHELL = Shell(
    options="set +u +o pipefail",
    variables={
        "DSTACK_NODE_RANK": "$NODE_RANK",
        "DSTACK_NODES_NUM": "$NUM_NODES",
        "DSTACK_GPUS_PER_NODE": "$LOCAL_WORLD_SIZE",
        "DSTACK_GPUS_NUM": "$WORLD_SIZE",
        "DSTACK_MASTER_NODE_IP": "$MASTER_ADDR",
        "DSTACK_NODES_IPS": "$MASTER_ADDR",
        "DSTACK_RUN_NAME": "$SGPU_RUN_NAME",
    },
    partly=frozenset({"DSTACK_NODES_IPS"}),
    prefix="DSTACK_",
)
"""The commands are joined with `&&`, so that the first failure ends them:
`dstack/_internal/server/services/jobs/configurators/base.py`."""

_MACHINES = left("sgpu starts no machines", "write `backend`, or `-t TARGET`: it says where")
_SIZE = left("a run has what comes with its GPUs")
_CONTAINER = left(
    "a run has no container of its own",
    "on Databricks, write `image`; see `docs/how-to/containers.md`",
)
_DATA = left("data is not mounted: ranks read it where it lies", "see `docs/how-to/data.md`")
_PACKAGES = "the packages are installed once, and pinned by their content"
_SECRET = re.compile(r"\$\{\{\s*secrets\.([\w.-]+)\s*\}\}")
_VENDORS = frozenset({"nvidia", "amd", "google", "tpu", "intel", "tenstorrent", "tt"})


def read_dstack(file: ForeignFile) -> tuple[ForeignTool, ForeignFile]:
    """The table for a task.

    Raises:
        InvalidInput: sgpu has no run for it.
    """
    kind = text_at(file.root, "type")
    if kind != "task":
        raise file.refused(
            f"is a dstack {kind}, not a task" if kind else "says no `type`",
            "keep it: sgpu runs what ends by itself, as a task does",
        )
    if at(file.root, "groups") is not None:
        raise file.refused(
            "has `groups`, different nodes in one task, which no run has",
            "write a run for each group under `runs` of a project file",
        )
    if not isinstance(at(file.root, "commands"), Sequence):
        raise file.refused(
            "has no `commands`: its image starts a program", "name the program there"
        )
    return DSTACK_TASK, file


def _least(value: Json) -> int | None:
    """The smallest number of a range: `2`, `2..4`, `2..`, `{min: 2}`."""
    if isinstance(value, dict):
        value = value.get("min") or value.get("max")
    text = str(value).replace(" ", "")
    first = text.partition("..")[0] or text.partition("..")[2]
    return int(first) if first.isdecimal() else None


def _gpu(one: ForeignField) -> Translation:
    """`H100:8`, `80GB:2`, `A100,H100:4..8`, a number, or a mapping of these."""
    spec = _parsed(one.value)
    if spec is None:
        return lost(f"`{one.text}` is no GPU", "write `type` and `gpus`")
    names, count, memory = spec
    least = _least(count)
    notes: list[str] = []
    if least is None:
        least = 1
        notes.append("one GPU on each node")
    elif str(count) != str(least):
        notes.append(f"the least number, {least} on each node")
    if least == 0:
        return changed("; ".join((*notes, "ranks are on the CPU")), *_puts(one, "CPU", 1))
    sized = f"{names[0]}_{memory.partition('..')[0]}" if names and memory else ""
    found = GpuType.find(sized) or (GpuType.find(names[0]) if names else None)
    if names and found is None:
        notes.append(f"sgpu knows no `{names[0]}`")
    if len(names) > 1:
        notes.append("the first of several")
    if memory and (found is None or not str(found).endswith("GB")):
        notes.append(f"sgpu does not ask for {memory} of memory")
    puts = _puts(one, str(found) if found else "GPU", least)
    return changed("; ".join(notes), *puts) if notes else carried(*puts)


def _puts(one: ForeignField, kind: str, each: int) -> tuple[tuple[Keys, Json], ...]:
    return put("type", kind), put("gpus", each * nodes_of(one, "nodes"))


def _parsed(value: Json) -> tuple[list[str], Json, str] | None:
    """The names, the number and the memory of a GPU."""
    if isinstance(value, dict):
        name = value.get("name")
        names = [*map(str, name)] if isinstance(name, list) else [str(name)] if name else []
        return names, value.get("count", 1), str(value.get("memory") or "")
    names, count, memory = [], "1", ""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    for token in str(value).replace(" ", "").split(":"):
        if token.lower() in _VENDORS:
            continue
        if token[:1].isalpha():
            names = [name for name in token.split(",") if name]
        elif any(letter.isalpha() for letter in token):
            memory = token
        elif token:
            count = token
    return names, count, memory


def _num_nodes(one: ForeignField) -> Translation:
    if at(one.block, "resources.gpu") is not None:
        return carried()
    return changed("one rank on each node", put("gpus", nodes_of(one, "nodes")))


def _variable(one: ForeignField) -> Translation:
    return _set(one.key, None if is_nothing(one.node) else one.text)


def _listed_variable(one: ForeignField) -> Translation:
    """`NAME=value`, or `NAME`."""
    name, equals, value = one.text.partition("=")
    return _set(name, value if equals else None)


def _set(name: str, value: str | None) -> Translation:
    if value is not None and (found := _SECRET.fullmatch(value.strip())) is None:
        return carried((("env", "variables", name), value))
    kept = f"dstack's server keeps `{found[1]}`; " if value is not None and found else ""
    return changed(
        f"{kept}sgpu reads it from your environment at launch: `export {name}=…` before",
        (("env", "secrets", name), f"env:{name}"),
    )


def _commands(one: ForeignField) -> Translation:
    lines = [str(line) for line in one.value] if isinstance(one.value, list) else []
    puts, count = packages(lines, one.file.relative)
    if count == len(lines):
        puts, count = (), 0
    said = command_of("\n".join(lines[count:]), _SHELL, *puts)
    note = "; ".join(filter(None, (_PACKAGES if count else None, said.note)))
    return changed(note, *said.puts, hint=said.hint) if note else said


def _repo(one: ForeignField) -> Translation:
    """A folder here, or a repository elsewhere."""
    value = one.value
    path = value.get("local_path") if isinstance(value, dict) else None
    text = str(path) if path else "" if isinstance(value, dict) else one.text
    local = text.partition(":")[0]
    if not local or "://" in text or "@" in local or local.startswith("~"):
        return lost("the code is a folder here", "clone it, and import the task there")
    root = one.file.relative(local)
    return changed(
        "the files as they are, whether git has them or not",
        *(() if root == "." else (put("code.root", root),)),
    )


def _no_code(one: ForeignField) -> Translation:
    files = at(one.block, "files")
    if isinstance(files, Sequence) and any(
        isinstance(item, Scalar) and item.text in (".", "./") for item in files.items
    ):
        return carried()
    return changed("dstack takes no files along", NO_CODE)


def _file(one: ForeignField) -> Translation:
    if one.text in (".", "./"):
        return carried()
    return lost(
        "only the folder of the code is there",
        "have the file in it, and write `code: {include: […]}`",
    )


def _unless_off(rule: Rule, off: Translation) -> Rule:
    def either(one: ForeignField) -> Translation:
        if one.text.lower() in ("off", "false"):
            return off
        return carried() if one.text.lower() == "true" else rule(one)

    return either


def _retry(one: ForeignField) -> Translation:
    """dstack has a time for retries, sgpu a number."""
    value = one.value
    if value is False:
        return carried()
    events = value.get("on_events") if isinstance(value, dict) else None
    listed = [*map(str, events)] if isinstance(events, list) else ["interruption", "error"]
    on = [
        ours for ours, theirs in (("infra", "interruption"), ("error", "error")) if theirs in listed
    ]
    if not on:
        return lost("sgpu does not ask again for GPUs that a platform lacks", "apply again")
    return changed(
        "dstack tries again for a time; sgpu counts, and `max` is yours to choose",
        put("retry.max", 3),
        put("retry.on", on),
    )


def _utilization(one: ForeignField) -> Translation:
    value = one.value if isinstance(one.value, dict) else {}
    least, window = value.get("min_gpu_utilization"), value.get("time_window")
    return carried(
        put("idle.below", f"{least}%"), put("idle.for", str(window)), put("idle.then", "stop")
    )


def _schedule(_: ForeignField) -> Translation:
    return lost(
        "a run has no schedule",
        "write a job: `jobs: {nightly: {run: NAME, schedule: …}}`, on Databricks",
    )


_PROFILE = {
    "spot_policy": lambda one: carried()
    if one.text == "on-demand"
    else lost("sgpu starts no machines"),
    "retry": _retry,
    "max_duration": _unless_off(
        length("timeout", 1, "the time of an attempt, with its start"), carried()
    ),
    "stop_duration": _unless_off(
        length("grace"), lost("sgpu ends ranks after `grace`", "write a long one: `grace: 1h`")
    ),
    "utilization_policy": _utilization,
    "schedule": _schedule,
    "tags.*": lambda one: changed("tags of the MLflow run", (("tags", one.key), one.text)),
    "startup_order": left("all nodes start together"),
    "stop_criteria": left("a run ends when all ranks have ended"),
    "retry_policy": left("dstack has `retry` now", "write `retry: {max: …}`"),
    **dict.fromkeys(
        (
            "backends", "regions", "availability_zones", "instance_types", "reservation",
            "max_price", "creation_policy", "idle_duration", "fleets", "instances",
            "backend_options", "termination_policy", "termination_idle_time", "pool_name",
            "instance_name",
        ),
        _MACHINES,
    ),
}  # fmt: skip

DSTACK_TASK = ForeignTool(
    what="a task of dstack",
    fields={
        "type": says_nothing,
        "name": name_of,
        "nodes": _num_nodes,
        "commands": _commands,
        "python": as_text("env.python"),
        "env.*": _variable,
        "env.#": _listed_variable,
        "resources.gpu": _gpu,
        "resources.cpu": _SIZE,
        "resources.memory": _SIZE,
        "resources.shm_size": _SIZE,
        "resources.disk": _SIZE,
        "repos.#": _repo,
        "files.#": _file,
        "volumes.#": _DATA,
        "priority": left(
            "sgpu has no such queue", "write `pool` and `priority`, where there are pools"
        ),
        "ports": left("sgpu opens no ports"),
        "shell": lambda one: (
            carried()
            if one.text in ("bash", "/bin/bash")
            else lost("`command` is for bash", "write `command: [SHELL, -c, …]`")
        ),
        "working_dir": left("a run starts in the folder of the code", "begin `command` with `cd`"),
        "setup": says_nothing,  # it has no effect in tasks
        "home_dir": says_nothing,  # it has no effect
        "single_branch": says_nothing,
        "dstack": lambda one: carried() if one.value is not True else lost("there is no server"),
        "registry_auth.*": _CONTAINER,
        **dict.fromkeys(
            ("image", "user", "privileged", "entrypoint", "nvcc", "docker"), _CONTAINER
        ),
        **_PROFILE,
    },
    absent={
        "name": name_of_file,
        "repos": _no_code,
        "python": lambda _: changed("ranks have the Python of sgpu itself, unless `env` says more"),
        "backend": lambda _: changed(
            "dstack starts machines; this run is for this machine", hint="write `backend`"
        ),
        "resources.gpu": lambda one: changed(
            "without a GPU ranks are on the CPU",
            put("type", "CPU"),
            put("gpus", nodes_of(one, "nodes")),
        ),
        "stop_duration": lambda _: changed("dstack waits 5 minutes", put("grace", "5m")),
    },
    empty=frozenset({"env.*"}),
)
