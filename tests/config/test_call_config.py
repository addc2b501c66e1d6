"""A call of a decorated function is a run: what is said last wins, mistakes are told in place."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.jsonable import Json
from tests.config.conftest import including
from tests.reading import clean, read_call

HERE = Place("train.py", 7, 2)
GIVEN: dict[str, Json] = {"gpus": 2, "type": "CPU", "entrypoint": "__main__:train"}
HF = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4"
SPELLED = {"gpus": "num_gpus", "type": "gpu_type", "mlflow.run_name": "run_name"}

Call = Callable[..., tuple[Loaded | None, tuple[Diagnostic, ...]]]


def outcome(
    given: Mapping[str, Json], project: str | bytes | None = None, **options: Any
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    return read_call(given, project, place=HERE, **options)


def called(given: Mapping[str, Json], project: str | None = None, **options: Any) -> Loaded:
    return clean(outcome(given, project, **options))


def spec(*arguments: Any, **options: Any) -> dict[str, Any]:
    return dict(called(*arguments, **options).runs[0].spec.fields)


def refused(*arguments: Any, **options: Any) -> tuple[Diagnostic, ...]:
    loaded, found = outcome(*arguments, **options)
    assert loaded is None
    return found


def told(found: tuple[Diagnostic, ...]) -> list[tuple[str, str]]:
    return [(one.code, str(one.place)) for one in found]


# What is said last wins.


def test_a_call_needs_no_project() -> None:
    loaded = called({**GIVEN, "until": "always", "args": {"n": 1}})
    (run,) = loaded.runs
    assert str(run.address) == "run.train"
    assert (loaded.kind, loaded.file, loaded.project_name) == ("run", "train.py", None)
    assert run.config.until == "always"
    assert run.places["args.n"] == HERE
    assert run.spec.text == (
        '{"args":{"n":1},"entrypoint":"__main__:train","gpus":2,"type":"CPU","until":"always"}'
    )


def test_what_is_said_last_wins() -> None:
    project = (
        "functions: {grace: 2s, timeout: 2h, tags: {b: project, c: project, d: project}}\n"
        "targets: {t: {functions: {tags: {d: target}}}, other: {functions: {grace: 9s}}}\n"
    )
    fallback: Any = {"grace": "1s", "startup_timeout": "1m", "tags": {"a": "fallback", "b": "x"}}
    given: Any = {**GIVEN, "timeout": "3h", "tags": {"c": "decorator", "d": "decorator"}}
    found = spec(given, project, fallback=fallback, target="t")
    assert found["startup_timeout"] == "1m"
    assert found["grace"] == "2s"
    assert found["timeout"] == "3h"
    assert found["tags"] == {"a": "fallback", "b": "project", "c": "decorator", "d": "target"}
    set_ = [("functions.tags.d", "option"), ("functions.gpus", "5")]
    found = spec(given, project, fallback=fallback, target="t", sets=set_)
    assert (found["tags"]["d"], found["gpus"]) == ("option", 5)


def test_how_long_a_call_is_kept_warm_is_no_field_of_its_run() -> None:
    assert called(GIVEN).keep_warm == 0
    assert called(GIVEN, fallback={"keep_warm": "2m"}).keep_warm == 120
    project = "functions: {keep_warm: 10m}\ntargets: {t: {functions: {keep_warm: 0}}}\n"
    assert called(GIVEN, project, fallback={"keep_warm": "2m"}).keep_warm == 600
    assert called(GIVEN, project, target="t").keep_warm == 0
    none = "functions: {keep_warm: null}\n"
    assert called(GIVEN, none, fallback={"keep_warm": "2m"}).keep_warm == 0
    assert called(GIVEN, project).runs[0].spec == called(GIVEN).runs[0].spec


def test_nothing_takes_away_what_is_below() -> None:
    fallback: Any = {"timeout": "3h", "startup_timeout": "1m"}
    assert "timeout" not in spec(GIVEN, "functions: {timeout: ~}", fallback=fallback)
    assert "timeout" not in spec({**GIVEN, "timeout": None}, fallback=fallback)
    project = "functions: {timeout: 1h}\ntargets: {t: {functions: }}\n"
    assert spec(GIVEN, project, fallback=fallback, target="t")["timeout"] == "3h"


def test_a_name_for_a_block_is_the_block() -> None:
    project = "functions: {backend: databricks, env: gpu}\nenvironments: {gpu: {lock: uv.lock}}\n"
    given: Any = {**GIVEN, "backend": {"profile": "p"}, "env": {"variables": {"A": "1"}}}
    found = spec(given, project)
    assert found["backend"] == {"kind": "databricks", "profile": "p"}
    assert found["env"] == {"use": "gpu", "lock": "uv.lock", "variables": {"A": "1"}}
    assert spec({**GIVEN, "backend": "ray"}, project)["backend"] == {"kind": "ray"}


def test_an_environment_is_taken_whole() -> None:
    fallback: Any = {"env": {"snapshot": True, "variables": {"A": "1"}}}
    named = "environments: {gpu: {lock: uv.lock}}\n"
    assert spec(GIVEN, fallback=fallback)["env"] == {"snapshot": True, "variables": {"A": "1"}}
    assert spec(GIVEN, "functions: {env: {lock: uv.lock}}", fallback=fallback)["env"] == {
        "lock": "uv.lock",
        "variables": {"A": "1"},
    }
    assert spec(GIVEN, named + "functions: {env: {use: gpu}}", fallback=fallback)["env"] == {
        "use": "gpu",
        "lock": "uv.lock",
        "variables": {"A": "1"},
    }
    given: Any = {**GIVEN, "env": {"dependencies": ["torch"]}}
    found = spec(given, named + "functions: {env: gpu}", fallback=fallback)
    assert found["env"] == {"dependencies": ["torch"], "variables": {"A": "1"}}
    given = {**GIVEN, "env": "gpu"}
    found = spec(given, named + "functions: {env: {variables: {A: 2}}}")
    assert found["env"] == {"use": "gpu", "lock": "uv.lock", "variables": {"A": "2"}}
    given = {**GIVEN, "env": {"snapshot": False, "use": None}}
    assert spec(given, "functions: {env: {lock: uv.lock}}", fallback=fallback)["env"] == {
        "lock": "uv.lock",
        "variables": {"A": "1"},
    }


@pytest.mark.parametrize(
    ("project", "captured"),
    [
        (None, True),
        ("functions: {env: {base: gpu-6, variables: {A: b}}}", True),
        ("functions: {env: {python: 3.12}}", True),
        ("functions: {env: {snapshot: false}}", False),
        ("functions: {env: {snapshot: true}}", False),
        ("functions: {env: {dependencies: [torch]}}", False),
        ("functions: {env: gpu}\nenvironments: {gpu: {base: gpu-6}}", False),
        ("functions: {image: main.ml.train:1}", False),
        ("functions: {backend: local}", False),
        ("functions: {backend: ~}", False),
        ("functions: {backend: {kind: databricks}}", True),
        ("functions: {}\ntargets: {t: {functions: {env: {lock: uv.lock}}}}", False),
    ],
)
def test_packages_of_the_caller_go_along_where_nothing_else_is_said(
    project: str | None, captured: bool
) -> None:
    target = "t" if project and "targets" in project else None
    fallback: Any = {"backend": "databricks"}
    loaded, found = outcome(GIVEN, project, captured=True, fallback=fallback, target=target)
    assert loaded is not None
    assert [item.code for item in found] == ["packages_captured"] * captured
    said = project is not None and "snapshot: true" in project
    assert loaded.runs[0].config.env.snapshot is (captured or said)


# What a value means.


def test_values_of_python_are_literal() -> None:
    args = {
        "text": "010", "yes": "true", "none": "null", "ref": "${var.x} ${env.HOME}", "empty": "",
        "n": None, "t": True, "f": -1.5e-7, "whole": 10**30, "inner": [{"a b": ["1", 1]}],
    }  # fmt: skip
    given: Any = {**GIVEN, "args": args, "env": {"variables": {"A": "${var.x}", "B": "1_0"}}}
    found = spec(given, "variables: {x: 1}\nfunctions: {description: 'x is ${var.x}'}\n")
    assert found["args"] == args
    assert found["env"]["variables"] == {"A": "${var.x}", "B": "1_0"}
    assert found["description"] == "x is 1"


def test_references_of_the_project_are_filled_in() -> None:
    project = (
        "project: {name: shop}\nvariables: {n: 2, t: {default: 1h}}\n"
        "functions: {gpus: '${var.n}', timeout: '${var.t}', mlflow: {experiment: '/${project.name}"
        "/${target.name}'}, env: {variables: {U: '${env.USER}', G: '${git.commit}'}}}\n"
        "targets: {t: {variables: {n: 4}, functions: {grace: '${var.n}s'}}}\n"
    )
    given = {key: value for key, value in GIVEN.items() if key != "gpus"}
    asked: list[int] = []

    def git() -> dict[str, str]:
        asked.append(1)
        return {"commit": "c0"}

    options: Any = {"variables": [("t", "2h")], "environ": {"USER": "me"}, "git": git}
    found = spec(given, project, target="t", **options)
    assert (found["gpus"], found["timeout"], found["grace"]) == (4, "2h", "4s")
    assert found["mlflow"] == {"experiment": "/shop/t"}
    assert found["env"]["variables"] == {"G": "c0", "U": "me"}
    assert asked == [1]
    assert called(given, project, target="t", **options).project_name == "shop"


@pytest.mark.parametrize("token", [HF, "-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA"])
def test_a_token_among_the_arguments_is_masked(token: str) -> None:
    given: Any = {**GIVEN, "args": {"token": token, "all": [{token: f"Bearer {token}"}]}}
    (run,) = called(given).runs
    assert "aB3dE" not in run.spec.text
    assert "MIIE" not in run.spec.text
    assert "***" in run.spec.text
    found = refused({**GIVEN, "env": {"variables": {"T": HF}}})
    assert told(found) == [("literal_token", "train.py:7:2")]


def test_an_argument_that_is_no_text_is_shown_escaped() -> None:
    (run,) = called({**GIVEN, "args": {"path": "a\udcffb"}}).runs
    assert run.config.args == {"path": "a\\udcffb"}


# What is wrong, and where.


def test_a_mistake_of_the_decorator_is_told_there_in_its_words() -> None:
    (found,) = refused({**GIVEN, "gpus": 0}, spelled=SPELLED)
    assert (found.code, found.place) == ("out_of_range", HERE)
    assert found.summary == "`num_gpus` must be at least 1, not `0`"
    (found,) = refused({**GIVEN, "type": "H10O"}, spelled=SPELLED)
    assert found.summary == '`gpu_type` must be a type of GPU, not the text `"H10O"`'
    assert "did you mean `H100`?" in (found.hint or "")
    (found,) = refused({**GIVEN, "type": "GPU_8xH100", "gpus": 3}, spelled=SPELLED)
    assert found.hint == 'use `gpu_type="H100"`, or `num_gpus=8`'
    (found,) = refused({**GIVEN, "mlflow": {"run_name": ["a"]}}, spelled={})
    assert found.summary == "`mlflow.run_name` must be text, not a list"


def test_what_nobody_said_is_missing_at_the_decorator() -> None:
    found = refused({"entrypoint": "__main__:train"}, "functions: {gpus: 2}\n")
    assert told(found) == [("missing_key", "train.py:7:2")]
    assert found[0].summary == "`type` is missing"


def test_a_name_that_is_none_is_told_at_the_decorator() -> None:
    assert told(refused(GIVEN, name="<lambda>")) == [("bad_name", "train.py:7:2")]


def test_a_target_that_does_not_go_with_the_decorator_is_told_in_the_project() -> None:
    project = "targets: {t: {functions: {type: GPU_8xH100}}}\n"
    (found,) = refused({**GIVEN, "gpus": 3}, project, target="t", spelled=SPELLED)
    assert (found.code, found.place) == ("bad_gpu_count", HERE)
    project = "functions: {}\ntargets: {t: {functions: {gpus: 3}}}\n"
    (found,) = refused({**GIVEN, "type": "GPU_8xH100"}, project, target="t", spelled=SPELLED)
    assert str(found.place) == "sgpu.yml:2:33"
    assert [str(other.place) for other in found.related] == ["train.py:7:2"]
    assert found.hint == "use `type: H100`, or `gpus: 8`"


def test_all_mistakes_of_project_and_decorator_are_told_at_once() -> None:
    project = (
        "functions: {gpu: 1, timeout: soon}\nruns: {a: {gpus: 0, type: CPU, command: x}}\n"
        "environments: {e: {pyton: 3}}\n"
    )
    found = refused({"entrypoint": "__main__:train", "grace": "never"}, project)
    assert told(found) == [
        ("unknown_key", "sgpu.yml:1:13"),
        ("bad_duration", "sgpu.yml:1:30"),
        ("out_of_range", "sgpu.yml:2:18"),
        ("unknown_key", "sgpu.yml:3:20"),
        ("bad_duration", "train.py:7:2"),
    ]


def test_a_project_that_is_no_yaml_is_told_alone() -> None:
    assert told(refused(GIVEN, "functions: [")) == [("yaml_syntax", "sgpu.yml:2:1")]
    assert told(refused(GIVEN, b"\xff")) == [("not_utf8", "sgpu.yml:1:1")]


def test_an_unknown_target_is_told() -> None:
    (found,) = refused(GIVEN, "targets: {prod: {}}\n", target="prd")
    assert (found.code, found.hint) == ("unknown_target", "did you mean `prod`?")
    (found,) = refused(GIVEN, target="prod")
    assert (found.code, found.place) == ("unknown_target", HERE)


def test_an_unknown_environment_is_told() -> None:
    (found,) = refused({**GIVEN, "env": "gpu"}, "environments: {gpus: {python: 3.11}}\n")
    assert (found.code, found.place, found.hint) == (
        "unknown_environment", HERE, "did you mean `gpus`?",
    )  # fmt: skip
    (found,) = refused({**GIVEN, "env": "gpu"})
    assert "environments: {gpu:" in (found.hint or "")


def test_options_without_a_project_are_told() -> None:
    (found,) = refused(GIVEN, variables=[("n", "1")])
    assert found.code == "unknown_variable"
    (found,) = refused(GIVEN, sets=[("functions.gpu", "1")])
    assert found.hint == "did you mean `functions.gpus`?"
    assert spec(GIVEN, sets=[("functions.gpus", "4")])["gpus"] == 4


def test_the_functions_of_an_included_file_are_those_of_the_project() -> None:
    project = "project: {name: p}\ninclude: [more.yml]\n"
    more = including({"more.yml": "functions: {timeout: 2h}\n"})
    assert spec(GIVEN, project, read_included=more)["timeout"] == "2h"
    deep = including({"team/more.yml": "functions: {env: {requirements: gpu.txt}}\n"})
    assert spec(GIVEN, project, read_included=deep)["env"]["requirements"] == "team/gpu.txt"
