"""A law: however a project is split into files, it means the same."""

import json
import posixpath
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sgpu_decl.config.loaded import Loaded
from tests.config.conftest import including, outcome
from tests.reading import clean

names = st.from_regex(r"[a-z][a-z0-9]{0,4}", fullmatch=True)
paths = st.sampled_from(["a.txt", "in/b.txt", "../c.txt", "./d.txt", "/e.txt", "~/f.txt"])
folders = st.sampled_from(["", "runs", "runs/deep", "teams/x"])
arguments = st.dictionaries(
    names, st.integers(0, 9) | st.floats(0, 1) | st.just("${var.shared}"), max_size=2
)
runs = st.fixed_dictionaries(
    {
        "gpus": st.integers(1, 8),
        "type": st.just("CPU"),
        "entrypoint": st.just("train.py:main"),
        "args": arguments,
    },
    optional={
        "code": st.fixed_dictionaries({"root": st.sampled_from([".", "src", "runs", "../lib"])}),
        "env": st.just("shared") | st.fixed_dictionaries({"requirements": paths}),
        "matrix": st.just({"axis": [1, 2]}),
    },
)
changes = st.fixed_dictionaries(
    {},
    optional={"gpus": st.integers(1, 8), "timeout": st.just("2h"), "env": st.just({"use": None})},
)


@st.composite
def projects(draw: st.DrawFn) -> dict[str, Any]:
    declared = draw(st.dictionaries(names, runs, min_size=1, max_size=4))
    plain = sorted(name for name, run in declared.items() if "matrix" not in run)
    jobs = {name: {"run": name, "schedule": "0 0 3 * * ?"} for name in plain[:1]}
    targets = draw(
        st.dictionaries(
            st.sampled_from(["prod", "dev"]),
            st.fixed_dictionaries(
                {"runs": st.dictionaries(st.sampled_from(sorted(declared)), changes)}
            ),
        )
    )
    return {
        "runs": declared,
        "jobs": jobs,
        "variables": {"shared": draw(st.integers(0, 9)), "other": 1},
        "environments": {"shared": {"requirements": draw(paths)}},
        "targets": targets,
    }


@st.composite
def splits(draw: st.DrawFn, project: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The root file, and the other files by their paths. Each member of a block stands anywhere."""
    count = draw(st.integers(0, 4))
    files: list[tuple[str, dict[str, Any]]] = [("", {"project": {"name": "p"}})]
    files += [(draw(folders), {}) for _ in range(count)]
    run_files: dict[str, str] = {}
    for block, members in project.items():
        for name, value in members.items():
            if block == "runs" and draw(st.booleans()):
                folder = draw(folders)
                text = {**_moved_run(value, folder), "name": name}
                text["code"] = {"root": posixpath.relpath(_root(value), folder or ".")}
                run_files[posixpath.join(folder, f"run-{name}.yml")] = json.dumps(text)
                continue
            parts = [value]
            if block == "targets":  # its changes of runs may stand in several files
                parts = [{"runs": {run: change}} for run, change in value["runs"].items()] or [{}]
            for part in parts:
                folder, content = draw(st.sampled_from(files))
                place = content.setdefault(block, {})
                moved = _moved(block, part, folder)
                if block == "targets" and name in place:
                    place[name].setdefault("runs", {}).update(moved["runs"])
                else:
                    place[name] = moved
    root = {**files[0][1], "include": ["**/*.yml"]}
    texts = {
        posixpath.join(folder, f"part-{number}.yml"): json.dumps(content)
        for number, (folder, content) in enumerate(files[1:])
    }
    everything = draw(st.permutations([*texts.items(), *run_files.items()]))
    return json.dumps(root), dict(everything)


def _root(run: dict[str, Any]) -> str:
    return str(run.get("code", {}).get("root", "."))


def _moved(block: str, value: Any, folder: str) -> Any:
    if block == "runs":
        return _moved_run(value, folder)
    if block == "environments":
        return {"requirements": _moved_path(value["requirements"], folder)}
    return value


def _moved_run(run: dict[str, Any], folder: str) -> dict[str, Any]:
    moved = dict(run)
    if "code" in run:
        moved["code"] = {"root": posixpath.relpath(_root(run), folder or ".")}
    if isinstance(env := run.get("env"), dict):
        moved["env"] = {"requirements": _moved_path(env["requirements"], folder)}
    return moved


def _moved_path(path: str, folder: str) -> str:
    """As it is written in a file of another folder."""
    if path.startswith(("/", "~")) or not folder:
        return path
    return posixpath.relpath(path, folder)


def read(root: str, texts: dict[str, str], target: str | None) -> Loaded:
    return clean(
        outcome(
            root,
            "sgpu.yml",
            target=target,
            read_included=including(texts),
            variables=[("other", "2")],
        )
    )


def meaning(loaded: Loaded) -> dict[str, str]:
    specs = {str(run.address): run.spec for run in loaded.runs}
    specs |= {str(job.address): job.spec for job in loaded.jobs}
    return {
        address: json.dumps(_normal(spec.fields), sort_keys=True) for address, spec in specs.items()
    }


def _normal(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """`./d.txt` and `d.txt` are one path: only what moves between folders is written anew."""
    env = spec.get("env", {})
    if "requirements" not in env:
        return spec
    return {**spec, "env": {**env, "requirements": posixpath.normpath(env["requirements"])}}


@settings(deadline=None, max_examples=60)
@given(data=st.data(), project=projects())
def test_splitting_a_project_changes_nothing(data: st.DataObject, project: dict[str, Any]) -> None:
    whole = json.dumps({"project": {"name": "p"}, **project})
    root, texts = data.draw(splits(project))
    for target in (None, *project["targets"]):
        one, several = read(whole, {}, target), read(root, texts, target)
        assert meaning(one) == meaning(several)
        assert {run.address for run in one.runs} == {run.address for run in several.runs}
        assert sorted(one.targets) == sorted(several.targets)
        if "./" not in whole:
            assert one.config_digest == several.config_digest
