"""A law: however a project is split into files, its plan and the digests of its code are the same.
What the files mean is compared in `tests/config/test_split_projects.py`."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.conftest import Shell
from tests.config.test_split_projects import names, splits

runs = st.fixed_dictionaries(
    {
        "gpus": st.integers(1, 2),
        "type": st.just("CPU"),
        "entrypoint": st.just("train.py:main"),
        "mlflow": st.just({"enabled": False}),
        "code": st.fixed_dictionaries({"root": st.sampled_from([".", "src", "runs"])}),
        "args": st.just({"n": "${var.shared}"}) | st.just({"n": 1}),
    }
)
numbers = count()


@st.composite
def projects(draw: st.DrawFn) -> dict[str, Any]:
    declared = draw(st.dictionaries(names, runs, min_size=1, max_size=3))
    changed = {draw(st.sampled_from(sorted(declared))): {"gpus": 3}}
    return {
        "runs": declared,
        "variables": {"shared": draw(st.integers(0, 9))},
        "targets": {"prod": {"runs": changed}},
    }


def planned(shell: Shell, folder: Path, files: Mapping[str, str]) -> dict[str, Any]:
    """The changes of a project with these files, without the places of values."""
    code = {f"{root}/train.py": "def main(n): ...\n" for root in ("src", "runs")}
    for name, text in {**files, **code, "train.py": "def main(n): ...\n"}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    data = replace(shell, folder=folder).done("plan", "-t", "prod", "-o", "json").json["data"]
    for change in data["changes"]:
        for field in change["fields"]:
            field.pop("origin")
    return {name: data[name] for name in ("changes", "summary", "estimate", "config_digest")}


@settings(
    deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), project=projects())
def test_a_split_project_has_the_same_plan_and_the_same_code(
    data: st.DataObject, project: dict[str, Any], sgpu: Shell
) -> None:
    top = sgpu.folder / str(next(numbers))
    root, files = data.draw(splits(project))
    whole = json.dumps({"project": {"name": "p"}, **project})
    one = planned(sgpu, top / "one", {"sgpu.yml": whole})
    assert planned(sgpu, top / "several", {**files, "sgpu.yml": root}) == one
    assert all(change["code"]["digest"] for change in one["changes"])
