"""The right form of a value that was written in another one, for hints: `retry: {max: 3}`."""

import json
import re
from collections import abc
from collections.abc import Iterable

from sgpu_decl.config.gpu_type import count_and_type
from sgpu_decl.text.yaml_nodes import Node, Scalar, Sequence, resolve

RIGHT_FORMS = {
    "after": "[prepare]",
    "args": "[--lr, '0.1']",
    "backend": "{kind: databricks}",
    "command": "[python, -m, tool]",
    "code": "{exclude: [data/]}",
    "code.exclude": "[data/]",
    "code.include": "[weights.bin]",
    "code.link": "[data/]",
    "dependencies": "[numpy]",
    "env": "{dependencies: [numpy]}",
    "env.dependencies": "[numpy]",
    "env.secrets": "{TOKEN: 'env:TOKEN'}",
    "env.variables": "{NAME: value}",
    "gpus": "8",
    "name": "train",
    "type": "GPU",
    "health": "{longer_than: 3h}",
    "launch": "{warm: auto}",
    "launch.warm": "[torch]",
    "idle": "{below: 5%, for: 20m, then: warn}",
    "lifecycle": "{prevent_destroy: true}",
    "lifecycle.ignore_changes": "[env.variables.SEED]",
    "logs": "{redact: true}",
    "matrix": "{lr: [0.1, 0.01]}",
    "mlflow": "{experiment: vision}",
    "notebook": "{path: /Workspace/Users/me@example.com/report}",
    "notebook.dependencies": "[numpy]",
    "notebook.parameters": "{name: value}",
    "notify": "{failure: [me@example.com, {webhook: ID}]}",
    "notify.failure": "[me@example.com]",
    "notify.slow": "[me@example.com]",
    "notify.start": "[me@example.com]",
    "notify.success": "[me@example.com]",
    "on_finish": "{failure: [me@example.com]}",
    "on_finish.command": "./done.sh",
    "on_finish.failure": "[me@example.com]",
    "on_finish.success": "[me@example.com]",
    "on_finish.webhook": "{url: 'env:WEBHOOK_URL'}",
    "on_finish.webhook.on": "[failure]",
    "parameters": "{lr: 0.1}",
    "permissions": "[{level: view, group: users}]",
    "queue": "true",
    "ray": "{num_cpus: 8}",
    "ray.resources": "{tpu: 1}",
    "retry": "{max: 3}",
    "retry.on": "[infra]",
    "run_as": "{service_principal: 0e9bbd6f-2cb4-4c8b-8c0b-1f2ad1b0c7a1}",
    "schedule": "'0 0 6 * * ?'",
    "tags": "{team: vision}",
    "targets": "[default]",
    "task": "{sql_task: {warehouse_id: ID, file: {path: /Workspace/x.sql}}}",
    "tasks": "{prepare: {python: prepare.py}, train: {run: train, after: [prepare]}}",
    "trigger": "{every: 6h}",
    "trigger.file_arrival": "/Volumes/main/ml/incoming/",
    "trigger.table_update.tables": "[main.ml.events]",
    "trigger.table_update": "[main.ml.events]",
    # of a project file
    "project": "{name: vision}",
    "runs": "{train: {gpus: 1, type: GPU, entrypoint: train.py}}",
    "jobs": "{nightly: {run: train, schedule: '0 0 6 * * ?'}}",
    "environments": "{train: {dependencies: [numpy]}}",
    "include": "[runs/*.yml]",
    "defaults": "{run: {gpus: 1}}",
    "defaults.run": "{gpus: 1}",
    "defaults.job": "{timezone: Europe/Berlin}",
    "presets": "{tags: {team: vision}}",
    "presets.tags": "{team: vision}",
    "removed": "[job.old]",
    "state": "{kind: folder, path: /shared/state}",
    "functions": "{keep_warm: 2m}",
    "variables": "{lr: {default: 0.1}}",
}
"""By the field's path in a run, a job or a project file, as one line of YAML."""

_ON = ("true", "yes", "on", "y", "1", "always")
_OFF = ("false", "no", "off", "n", "0", "never", "none")
_OF_WORDS: dict[str, dict[str, str | None]] = {
    "retry": {**dict.fromkeys(_ON, "{max: 10}"), **dict.fromkeys(_OFF, None)},
    "resume": {**dict.fromkeys(_ON, "auto"), **dict.fromkeys(_OFF, None)},
    "mlflow": {**dict.fromkeys(_ON, "{enabled: true}"), **dict.fromkeys(_OFF, "{enabled: false}")},
    "launch.warm": {**dict.fromkeys(_ON, "auto"), **dict.fromkeys(_OFF, "off")},
    "launch.flight_recorder": {**dict.fromkeys(_ON, "on"), **dict.fromkeys(_OFF, "off")},
    "lifecycle": dict.fromkeys(_OFF, None),
    "logs": dict.fromkeys(_OFF, None),
}
"""What `yes` and `no` mean in fields that are no yes or no; None where the field is left out."""
_IN_BLOCK = {"retry": "max", "mlflow": "experiment", "code": "root", "project": "name"}
"""The field of a block that a value in its place means."""
_TEXTS = ("after", "dependencies", "exclude", "include", "link", "on", "success", "failure")
"""Lists whose members are texts without spaces."""
_MAPPINGS = ("variables", "tags", "parameters")
_SAFE = re.compile(r"[A-Za-z./][A-Za-z0-9_./@+*<>=~\[\]-]*")
_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SAFE_WORDS = re.compile(r"[\w./=-]+(?: +[\w./=-]+)*", re.ASCII)


def value_hint(path: str, node: Node | None, wanted: str) -> str | None:
    """The hint for a value that a field does not take; None where the right form is not known.

    Args:
        path: the field in its run, job or project file, without names that the user gave.
        node: what is written.
        wanted: what the field takes: `a mapping`, `a list` and so on.
    """
    leaf = path.rpartition(".")[2]
    word = node.text.lower() if isinstance(node, Scalar) else ""
    if word in (meant := _OF_WORDS.get(path, {})):
        form = meant[word]
        return f"write `{leaf}: {form}`" if form is not None else "leave it out"
    if path == "gpus" and (both := count_and_type(word)) is not None:
        return both
    form = _form(path, leaf, node, wanted)
    return f"write `{leaf}: {form}`" if form is not None else None


def _form(path: str, leaf: str, node: Node | None, wanted: str) -> str | None:
    text = node.text if isinstance(node, Scalar) else None
    if wanted == "a list":
        if text is not None and leaf in _TEXTS and _SAFE.fullmatch(text):
            return f"[{_quoted(text)}]"
        if path == "args" and text and _SAFE_WORDS.fullmatch(text):
            return flow_list(text.split())
    if wanted == "a mapping":
        if leaf in _MAPPINGS and (pairs := _pairs(node)):
            return "{" + ", ".join(f"{key}: {_quoted(value)}" for key, value in pairs) + "}"
        if leaf in _IN_BLOCK and text is not None and _fits_block(leaf, text):
            return f"{{{_IN_BLOCK[leaf]}: {text}}}"
    return RIGHT_FORMS.get(path)


def _fits_block(leaf: str, text: str) -> bool:
    if leaf == "retry":
        return text.isascii() and text.isdigit()
    return bool(_SAFE.fullmatch(text))


def argument_list(values: abc.Mapping[str, object]) -> str | None:
    """The arguments of a script that were written as a mapping, as the list that it takes; None
    where a value has no such form."""
    words: list[str] = []
    for key, value in values.items():
        if isinstance(value, abc.Mapping | list | tuple) or value is None or value is False:
            return None
        words.append(key if key.startswith("-") else f"--{key}")
        if value is not True:
            words.append(str(value))
    return f"args: {flow_list(words)}" if words else None


def _pairs(node: Node | None) -> list[tuple[str, str]]:
    """`A=1`, or a list of such texts, as names and values."""
    items = node.items if isinstance(node, Sequence) else [node]
    texts = [item.text if isinstance(item, Scalar) else "" for item in items]
    pairs = [text.partition("=") for text in texts]
    found = [(key, value) for key, equals, value in pairs if equals and _KEY.fullmatch(key)]
    return found if len(found) == len(texts) else []


def flow_list(words: Iterable[str]) -> str:
    """Texts as a list of YAML in one line."""
    return f"[{', '.join(map(_quoted, words))}]"


def _quoted(text: str) -> str:
    """A text as a scalar of YAML in one line, in quotes where it would mean something else."""
    if _SAFE.fullmatch(text) and isinstance(resolve(text), str) and not set("[],") & set(text):
        return text
    if re.fullmatch(r"-{1,2}[A-Za-z][\w-]*", text, re.ASCII):
        return text
    if "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False)
