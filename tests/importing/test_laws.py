"""Laws of `sgpu import`, over generated files of each tool: every field is carried, changed or
lost, a loss has its reason, and sgpu takes the YAML that is written."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from sgpu_decl.config.file_reader import Overrides, read
from sgpu_decl.config.project_files import nothing_included, read_files
from sgpu_decl.errors import SgpuError
from sgpu_decl.importing import air_workload, bundle_task, dstack_task, skypilot_task
from sgpu_decl.importing.foreign_file import plain
from sgpu_decl.importing.foreign_tool import ForeignTool
from sgpu_decl.importing.tool_import import ImportedFile, import_file
from sgpu_decl.importing.translation import NEXT, Fate
from sgpu_decl.text.yaml_reader import load_file
from tests.support import some

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
NAME = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,12}", fullmatch=True)
SCALAR = st.none() | st.booleans() | st.integers(-2, 10**6) | st.floats(allow_nan=False) | TEXT
JUNK = st.recursive(
    SCALAR, lambda one: st.lists(one, max_size=3) | st.dictionaries(NAME, one, max_size=3)
)

# What a field usually holds; everything else gets junk.
USUAL: Mapping[str, st.SearchStrategy[Any]] = {
    "experiment_name": NAME,
    "compute.num_accelerators": st.sampled_from([8, 16]),
    "compute.accelerator_type": st.sampled_from(
        ["GPU_8xH100", "GPU_1xA10", "h100_80gb", "GPU_1xH100"]
    ),
    "environment.version": st.sampled_from([4, "6", "databricks_ai_v5", "x"]),
    "environment.dependencies": st.lists(
        st.sampled_from(["numpy", "torch==2.9", "./x.whl", "-r a"])
    ),
    "command": st.sampled_from(["python train.py", "cd $CODE_SOURCE_PATH\ntorchrun a.py\n"]),
    "code_source.root_path": st.sampled_from([".", "src", "$HOME/x", "~/x"]),
    "max_retries": st.integers(0, 5),
    "timeout_minutes": st.integers(1, 10**5),
    "run": st.sampled_from(["python train.py", "echo $SKYPILOT_NODE_RANK $SKYPILOT_NODE_IPS"]),
    "num_nodes": st.integers(1, 4),
    "nodes": st.integers(1, 4),
    "resources.accelerators": st.sampled_from(
        ["H100:8", {"A100": 4}, ["L4", "T4:2"], "V100:0.5", "tpu-v5"]
    ),
    "type": st.just("task"),
    "commands": st.sampled_from([["pip install numpy", "python a.py"], ["echo $DSTACK_NODES_IPS"]]),
    "resources.gpu": st.sampled_from(
        ["A100:80GB:4..8", 2, "24GB..", "H100,H200:8", {"name": "L4", "count": "0..2"}]
    ),
    "max_duration": st.sampled_from(["off", "2h", 3600, False, True]),
    "stop_duration": st.sampled_from(["off", "2m", 30]),
}
NEEDED = {
    "air": ("experiment_name", "compute.num_accelerators", "compute.accelerator_type", "command"),
    "skypilot": ("run",),
    "dstack": ("type", "commands"),
}
TABLES = {
    "air": (air_workload.NEWER, air_workload.OLDER),
    "skypilot": (skypilot_task.SKYPILOT_TASK,),
    "dstack": (dstack_task.DSTACK_TASK,),
}


def _add(content: dict[str, Any], path: list[str], value: Any) -> None:
    *above, last = path
    for key in above:
        inner = content.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        content = inner
    content.setdefault(last, value)


@st.composite
def files(draw: st.DrawFn, tool: str) -> dict[str, Any]:
    """A file with what its tool demands, some of its fields, and some that it does not have."""
    table: ForeignTool = draw(st.sampled_from(TABLES[tool]))
    chosen = draw(st.lists(st.sampled_from(sorted(table.fields)), max_size=12))
    content: dict[str, Any] = {}
    for path in (*NEEDED[tool], *chosen):
        usual = USUAL.get(path, JUNK)
        value = draw(usual if path in NEEDED[tool] else usual | JUNK)
        keys = [draw(NAME) if key == "*" else key for key in path.split(".")]
        _add(content, *((keys[:-1], [value]) if keys[-1] == "#" else (keys, value)))
    for name, value in draw(st.dictionaries(NAME, JUNK, max_size=2)).items():
        content.setdefault(name, value)
    return content


JOB: Mapping[str, st.SearchStrategy[Any]] = {
    "name": NAME,
    "description": TEXT,
    "schedule": st.just({"quartz_cron_expression": "0 0 2 * * ?", "timezone_id": "UTC"}),
    "trigger": st.sampled_from(
        [
            {"periodic": {"interval": 1, "unit": "HOURS"}},
            {"file_arrival": {"url": "/Volumes/a/b/c/"}},
        ]
    ),
    "continuous": st.just({"pause_status": "PAUSED"}),
    "tags": st.dictionaries(NAME, NAME, max_size=2),
    "parameters": st.just([{"name": "day", "default": "1"}]),
    "permissions": st.just(
        [{"level": "CAN_VIEW", "group_name": "users"}, {"level": "IS_OWNER", "user_name": "a"}]
    ),
    "email_notifications": st.just(
        {"on_failure": ["a@example.com"], "no_alert_for_skipped_runs": True}
    ),
    "webhook_notifications": st.just({"on_failure": [{"id": "abc"}]}),
    "notification_settings": st.just({"no_alert_for_canceled_runs": True}),
    "health": st.just(
        {"rules": [{"metric": "RUN_DURATION_SECONDS", "op": "GREATER_THAN", "value": 60}]}
    ),
    "timeout_seconds": st.integers(0, 10**5),
    "max_concurrent_runs": st.integers(1, 3),
    "queue": st.just({"enabled": False}),
    "run_as": st.just({"user_name": "a@example.com"}),
    "budget_policy_id": NAME,
    "git_source": st.just({"git_url": "https://x", "git_provider": "gitHub"}),
    "job_clusters": st.just([{"job_cluster_key": "a", "new_cluster": {}}]),
    "environments": st.just(
        [
            {
                "environment_key": "default",
                "spec": {"environment_version": "5", "dependencies": ["numpy"]},
            }
        ]
    ),
    "edit_mode": st.just("UI_LOCKED"),
}
GPU_TASK = {
    "task_key": "train",
    "environment_key": "default",
    "ai_runtime_task": {
        "experiment": "a",
        "deployments": [
            {
                "command_path": "./run.sh",
                "compute": {"accelerator_type": "GPU_8xH100", "accelerator_count": 8},
            }
        ],
    },
}
OTHER_TASKS = (
    {
        "task_key": "prep",
        "notebook_task": {"notebook_path": "/a/b"},
        "depends_on": [{"task_key": "train"}],
    },
    {"task_key": "sql", "sql_task": {"warehouse_id": "x"}, "run_if": "ALL_DONE"},
    {"task_key": "check", "condition_task": {"op": "EQUAL_TO", "left": "1", "right": "1"}},
)


@st.composite
def bundles(draw: st.DrawFn) -> dict[str, Any]:
    """A bundle with one job that has a GPU task, and perhaps other tasks."""
    chosen = draw(st.lists(st.sampled_from(sorted(JOB)), max_size=8, unique=True))
    job = {key: draw(JOB[key] | JUNK) for key in chosen}
    task = json.loads(json.dumps(GPU_TASK))
    for path in draw(st.lists(st.sampled_from(sorted(bundle_task.BUNDLE_TASK.fields)), max_size=4)):
        if not path.startswith("gen_ai") and "deployments" not in path:
            _add(task, path.split("."), draw(USUAL.get(path, JUNK) | JUNK))
    others = draw(st.lists(st.sampled_from(OTHER_TASKS), max_size=2, unique_by=id))
    job["tasks"] = [task, *others, *draw(st.lists(JUNK, max_size=1))]
    root = draw(
        st.dictionaries(
            st.sampled_from(["variables", "targets", "sync", "workspace", "artifacts"]),
            JUNK,
            max_size=3,
        )
    )
    return {"bundle": {"name": draw(NAME)}, **root, "resources": {"jobs": {draw(NAME): job}}}


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from leaves(below, (*path, str(key)))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, str(index)))
    else:
        yield path


def check(imported: ImportedFile, content: Any) -> None:
    """The laws of one file."""
    paths = [one.path for one in imported.fields]
    assert len(paths) == len(set(paths))
    for leaf in leaves(content):
        said = [path for path in paths if leaf[: len(path)] == path]
        # A setting of a job is carried but for a part of it that is lost.
        assert len(said) == 1 or (imported.tool == "bundle" and len(said) == 2), (leaf, said)
    for one in (*imported.fields, *imported.defaults):
        translation = one.translation
        assert translation.fate in Fate
        assert (translation.fate is Fate.CARRIED) or translation.note
        assert not (translation.fate is Fate.LOST and translation.puts)
    for one in imported.fields:
        assert one.place is not None
    document, _ = load_file(imported.text, "imported.yaml")
    written: Any = plain(some(document).root)
    given = [
        (name, "1")  # `--var` gives it
        for name, said in written.get("variables", {}).items()
        if isinstance(said, dict) and "default" not in said and "lookup" not in said
    ]
    parsed = read_files(imported.text, "imported.yaml", nothing_included)
    overrides = Overrides(target=None, variables=given, environ={}, git=dict)
    loaded, findings = read(parsed, overrides)
    assert loaded is not None, findings
    for one in (*imported.fields, *imported.defaults):
        for path, value in one.translation.puts:
            assert _is_there(value, written, path), (path, value)


def _is_there(value: Any, block: Any, path: tuple[str, ...]) -> bool:
    for key in path:
        if key == NEXT:
            return value in block
        if key == "kind" and block == value:
            return True  # `backend: NAME` is short for it
        block = block[key]
    return bool(block == value)


def outcome(path: Path, tool: str) -> ImportedFile | None:
    """The import of a file; None where it is refused, with a way out."""
    try:
        imported = import_file(path, tool=tool)
    except SgpuError as error:
        event("refused" if error.hint or error.diagnostics else str(error))
        return None
    event(f"{len(imported.of(Fate.LOST))} lost")
    return imported


def law(examples: int) -> settings:
    fixture = HealthCheck.function_scoped_fixture  # each example writes the file anew
    return settings(deadline=None, max_examples=examples, suppress_health_check=[fixture])


@pytest.mark.parametrize("tool", sorted(TABLES))
@law(80)
@given(data=st.data())
def test_every_field_is_carried_changed_or_lost(
    tmp_path: Path, tool: str, data: st.DataObject
) -> None:
    content = data.draw(files(tool))
    path = tmp_path / "theirs.yaml"
    path.write_text(json.dumps(content, ensure_ascii=False))
    imported = outcome(path, tool)
    if imported is not None:
        check(imported, content)
        assert import_file(path, tool=tool) == imported


@law(80)
@given(content=bundles())
def test_every_field_of_a_bundle_is_carried_changed_or_lost(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "databricks.yml"
    path.write_text(json.dumps(content, ensure_ascii=False))
    (tmp_path / "run.sh").write_text("#!/bin/bash\ncd $CODE_SOURCE_PATH\npython train.py\n")
    imported = outcome(path, "bundle")
    if imported is not None:
        check(imported, content)
