"""A task of SkyPilot.

Sources: https://docs.skypilot.co/en/latest/reference/yaml-spec.html, and `get_task_schema` and
`_get_single_resources_schema` of `sky/utils/schemas.py` in
https://pypi.org/project/skypilot/0.14.1/; the variables of its nodes:
https://docs.skypilot.co/en/latest/running-jobs/environment-variables.html
"""

import posixpath
import re
from collections.abc import Iterator

from sgpu_decl.config.gpu_type import GpuType
from sgpu_decl.importing.command_script import Shell, command_of, packages
from sgpu_decl.importing.field_rules import (
    NO_CODE,
    code_root,
    left,
    name_of,
    name_of_file,
    nodes_of,
    secret_of_user,
)
from sgpu_decl.importing.foreign_file import ForeignField, ForeignFile, at, text_at
from sgpu_decl.importing.foreign_tool import ForeignTool
from sgpu_decl.importing.translation import (
    Translation,
    carried,
    changed,
    lost,
    put,
)
from sgpu_decl.model.jsonable import Json
from sgpu_decl.text.yaml_nodes import is_nothing

_SHELL = Shell(
    options="set +eu +o pipefail",
    variables={
        "SKYPILOT_NODE_RANK": "$NODE_RANK",
        "SKYPILOT_NUM_NODES": "$NUM_NODES",
        "SKYPILOT_NUM_GPUS_PER_NODE": "$LOCAL_WORLD_SIZE",
        "SKYPILOT_NODE_IPS": "$MASTER_ADDR",
        "SKYPILOT_TASK_ID": "$SGPU_RUN_NAME-$SGPU_ATTEMPT",
    },
    partly=frozenset({"SKYPILOT_NODE_IPS"}),
    prefix="SKYPILOT_",
)
"""`bash` without options: `make_task_bash_script` of `sky/skylet/log_lib.py`."""

_MACHINES = left("sgpu starts no machines", "write `backend`, or `-t TARGET`: it says where")
_SIZE = left("a run has what comes with its GPUs")
_DATA = left(
    "data is not copied: ranks read it where it lies",
    "see `docs/how-to/data.md`; `code: {link: […]}` links it on this machine",
)
_NO_SERVICE = left("sgpu runs no services")
_INTERNAL = left("it is SkyPilot's own")
_PRIORITY = "write `pool` and `priority`, where the backend has pools"


def read_skypilot(file: ForeignFile) -> tuple[ForeignTool, ForeignFile]:
    """The table for a task.

    Raises:
        InvalidInput: sgpu has no run for it.
    """
    for key, what in (("service", "a service"), ("pool", "a pool of workers")):
        if at(file.root, key) is not None:
            raise file.refused(
                f"is {what} (`{key}`), which has no end", "keep it: sgpu runs what ends by itself"
            )
    if text_at(file.root, "run") is None:
        raise file.refused("has no `run`, so nothing would be executed", "name a task with `run`")
    return SKYPILOT_TASK, file


def _gpus(one: ForeignField, found: list[tuple[str, float]]) -> Translation:
    """The first of some accelerators, of a node each."""
    name, count = found[0]
    gpu_type = GpuType.find(name)
    each = max(1, round(count))
    gpus = each * nodes_of(one, "num_nodes")
    puts = put("type", str(gpu_type) if gpu_type else "GPU"), put("gpus", gpus)
    notes = [
        *([f"sgpu knows no `{name}`"] if gpu_type is None else []),
        *([f"a rank has a whole GPU, not {count}"] if count != each else []),
        *(["the first of several"] if len(found) > 1 else []),
    ]
    return changed("; ".join(notes), *puts) if notes else carried(*puts)


def _accelerators(one: ForeignField) -> Translation:
    """`H100:8`, `{H100: 8}`, or several of these, one of which is meant."""
    found = [*_listed(one.value)]
    if not found:
        return lost("it names no accelerator", "write `type` and `gpus`")
    return _gpus(one, found)


def _listed(value: Json) -> Iterator[tuple[str, float]]:
    if isinstance(value, list):
        for item in value:
            yield from _listed(item)
    elif isinstance(value, dict):
        for name, count in value.items():
            is_number = isinstance(count, int | float) and not isinstance(count, bool)
            yield name, float(count) if is_number and count else 1.0
    elif isinstance(value, str) and value:
        name, _, count = value.partition(":")
        yield name, float(count) if re.fullmatch(r"\d+(\.\d+)?", count) and float(count) else 1.0


def _alternatives(one: ForeignField) -> Translation:
    """`any_of` and `ordered`: resources one of which is meant."""
    value = one.value if isinstance(one.value, list) else []
    found = [
        found
        for item in value
        if isinstance(item, dict)
        for found in _listed(item.get("accelerators"))
    ]
    if not found:
        return lost("sgpu takes one kind of resources", "write `type` and `gpus`")
    said = _gpus(one, found)
    return changed(said.note or "the first of several", *said.puts)


def _num_nodes(one: ForeignField) -> Translation:
    """With accelerators, these say the number of GPUs."""
    if at(one.block, "resources.accelerators") is not None:
        return carried()
    if any(at(one.block, f"resources.{key}") is not None for key in ("any_of", "ordered")):
        return carried()
    return changed("one rank on each node", put("gpus", nodes_of(one, "num_nodes")))


def _no_gpu(one: ForeignField) -> Translation:
    if any(at(one.block, f"resources.{key}") is not None for key in ("any_of", "ordered")):
        return carried()
    return changed(
        "without accelerators ranks are on the CPU",
        put("type", "CPU"),
        put("gpus", nodes_of(one, "num_nodes")),
    )


def _variable(one: ForeignField) -> Translation:
    if is_nothing(one.node):  # `--env NAME` gives it
        return secret_of_user(one)
    return carried((("env", "variables", one.key), one.text))


def _named_secret(one: ForeignField) -> Translation:
    return changed(
        f"sgpu reads it from your environment at launch: `export {one.text}=…` before",
        (("env", "secrets", one.text), f"env:{one.text}"),
    )


def _setup(one: ForeignField) -> Translation:
    """It installs packages, or else comes before `run`."""
    lines = _lines(one.text)
    if not lines:
        return carried()
    puts, count = packages(lines, lambda path: one.file.relative(_in_workdir(one, path)))
    if count == len(lines):
        return changed("the packages are installed once, and pinned by their content", *puts)
    return changed("it runs at the start of `command`, each time ranks start")


def _run(one: ForeignField) -> Translation:
    setup = one.beside("setup")
    lines = _lines(setup or "")
    first = f"{setup.rstrip()}\n" if setup and packages(lines)[1] != len(lines) else ""
    return command_of(f"{first}{one.text}", _SHELL)


def _in_workdir(one: ForeignField, path: str) -> str:
    """A path of a script, which runs in the working folder."""
    return posixpath.join(one.beside("workdir") or ".", path)


def _lines(text: str) -> list[str]:
    return [
        line
        for line in text.splitlines()
        if line.strip() and not line.lstrip().startswith("#") and line.strip() != "set -e"
    ]


_ERRORS = "job_recovery.max_restarts_on_errors"


def _recovery(one: ForeignField) -> Translation:
    """SkyPilot recovers lost machines without a limit."""
    note = "sgpu counts restarts after lost machines; `max` is yours to choose"
    if one.beside(f"resources.{_ERRORS}") not in (None, "0"):
        return changed(note)
    return changed(note, put("retry.max", 10), put("retry.on", ["infra"]))


def _errors(one: ForeignField) -> Translation:
    if one.number == 0:
        return carried()
    note = "sgpu counts restarts after lost machines, too"
    return changed(note, put("retry.max", one.value), put("retry.on", ["infra", "error"]))


def _spot(one: ForeignField) -> Translation:
    return carried() if one.value is False else lost("sgpu starts no machines")


_RESOURCES = {
    "accelerators": _accelerators,
    "any_of": _alternatives,
    "ordered": _alternatives,
    "use_spot": _spot,
    _ERRORS: _errors,
    "job_recovery.strategy": _recovery,
    "job_recovery.recover_on_exit_codes": left(
        "sgpu does not look at exit codes", "`retry: {on: [error]}` starts after any failure"
    ),
    "job_recovery": _recovery,
    "labels.*": lambda one: changed("tags of the MLflow run", (("tags", one.key), one.text)),
    "priority": left("sgpu has no such queue", _PRIORITY),
    "priority_class": left("sgpu has no such queue", _PRIORITY),
    "image_id": left("a run has no image of a machine", "on Databricks, write `image`"),
    "max_hourly_cost": left("sgpu starts no machines"),
    "autostop": left("there are no machines to stop", "`idle` ends a run that does nothing"),
    "accelerator_args": left("sgpu starts no machines"),
    "ports": left("sgpu opens no ports"),
    "volumes": _DATA,
    **dict.fromkeys(("cloud", "region", "zone", "infra", "instance_type"), _MACHINES),
    **dict.fromkeys(("network_tier", "disk_tier", "local_disk", "disk_size"), _MACHINES),
    **dict.fromkeys(("cpus", "memory", "ephemeral_storage"), _SIZE),
}

SKYPILOT_TASK = ForeignTool(
    what="a task of SkyPilot",
    fields={
        "name": name_of,
        "workdir.url": left("the code is a folder here", "clone it, and import the task there"),
        "workdir.ref": left("the code is a folder here", "check the revision out"),
        "workdir": code_root,
        "num_nodes": _num_nodes,
        **{f"resources.{key}": rule for key, rule in _RESOURCES.items()},
        "envs.*": _variable,
        "secrets.*": secret_of_user,  # the value in the file, too, is not written down
        "secrets.#": _named_secret,
        "managed_secrets.#": left(
            "SkyPilot's server keeps it", "write `env: {secrets: {NAME: env:NAME}}`"
        ),
        "setup": _setup,
        "run": _run,
        "file_mounts.*": _DATA,
        "volumes.*": _DATA,
        "volume_mounts.#": _DATA,
        "event_callback": left("sgpu does not call it", "write `on_finish: {webhook: 'env:URL'}`"),
        "inputs": left("it estimates the time of copies"),
        "outputs": left("it estimates the time of copies"),
        "config": left("it configures clouds"),
        "experimental": left("it configures clouds"),
        "api_server_access": left("there is no server"),
        "file_mounts_mapping": _INTERNAL,
        "_metadata": _INTERNAL,
    },
    absent={
        "name": name_of_file,
        "workdir": lambda _: changed("SkyPilot takes no files along", NO_CODE),
        "setup": lambda _: changed("ranks have the packages of sgpu's own interpreter"),
        "backend": lambda _: changed(
            "SkyPilot looks for a cloud; this run is for this machine", hint="write `backend`"
        ),
        "resources.accelerators": _no_gpu,
    },
    empty=frozenset({"envs.*", "secrets.*"}),
)
