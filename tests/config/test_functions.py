"""The block `functions` of a project file is checked although nobody may ever call a function."""

import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.config.plain_values import Conversion
from sgpu_decl.config.project import DECIDED, Functions
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.schemas import describe, documents
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.text.yaml_reader import load

Good = Callable[..., Loaded]
Bad = Callable[..., tuple[Diagnostic, ...]]

WHOLE = """\
variables: {n: 2}
environments: {gpu: {lock: uv.lock}}
functions:
  gpus: ${var.n}
  type: a10g
  backend: databricks
  env: gpu
  timeout: 3h
  retry: {max: 1, on: [infra]}
  mlflow: {experiment: shared}
  max_parallel: 5
  keep_warm: 10m
  pool: p
  tags: {team: a}
  launch: {warm: off}
targets:
  prod: {functions: {gpus: 8, type: H100, timeout: ~, env: {variables: {A: 1}}}}
"""

CASES = [
    ("unknown key", "functions: {timeut: 3h}",
     "unknown_key", "1:13", "unknown key `timeut` in `functions`", "did you mean `timeout`?"),
    ("unknown key in a block", "functions: {retry: {maxx: 1}}",
     "unknown_key", "1:21", "unknown key `maxx` in `functions.retry`", "did you mean `max`?"),
    ("what a call decides", "functions: {entrypoint: a.py}",
     "unknown_key", "1:13", "unknown key `entrypoint` in `functions`",
     "remove it: it is the decorated function"),
    ("wrong type", "functions: {gpus: two}",
     "wrong_type", "1:19", "`functions.gpus` must be a whole number, not `two`", ""),
    ("out of range", "functions: {gpus: 0}",
     "out_of_range", "1:19", "`functions.gpus` must be at least 1", ""),
    ("unknown type of GPU", "functions: {type: H1000}",
     "unknown_gpu_type", "1:19", "`functions.type` must be a type of GPU", "`H100`, `H20`"),
    ("how long a call is kept warm", "functions: {keep_warm: soon}",
     "bad_duration", "1:24", "`functions.keep_warm` must be a duration, not `soon`", "write `90s`"),
    ("a list", "functions: [a]",
     "wrong_type", "1:1", "`functions` must be a mapping, not a list", ""),
    ("a count that the nodes do not have", "functions: {type: GPU_8xH100, gpus: 3}",
     "bad_gpu_count", "1:37", "a node of 8 GPUs, and 3 is no multiple (`functions`)", ""),
    ("two environments", "functions: {env: {snapshot: true, lock: uv.lock}}",
     "two_environments", "1:35", "`env.lock` asks for another", ""),
    ("an environment that is not there",
     "functions: {env: gpu}\nenvironments: {gpus: {python: 3.11}}",
     "unknown_environment", "1:18", "names no environment: `gpu`", "did you mean `gpus`?"),
    ("a reference to nothing", "functions: {gpus: '${var.n}'}",
     "unknown_reference", "1:19", "no variable `n`", "declare it"),
    ("an axis", "functions: {timeout: '${matrix.t}'}",
     "unknown_reference", "1:22", "no axis `t`", ""),
    ("a token", "functions: {env: {variables: {A: hf_aB3dE6gH9jK2mN5pQ8sT1vW4}}}",
     "literal_token", "1:34", "a Hugging Face token", "secrets"),
    ("unknown key in a target", "targets: {t: {functions: {gpu: 1}}}",
     "unknown_key", "1:27", "unknown key `gpu` in `targets.t.functions`", "did you mean `gpus`?"),
    ("what a call decides in a target", "targets: {t: {functions: {args: {a: 1}}}}",
     "unknown_key", "1:27", "unknown key `args`", "they are the arguments of the call"),
    ("a field of a run at the root", "gpus: 1",
     "unknown_key", "1:1", "unknown key `gpus`", "`gpus` belongs in `runs.NAME`"),
    ("a name at the root", "name: a",
     "unknown_key", "1:1", "unknown key `name`", "`name` belongs in `project`"),
]  # fmt: skip


def problems(text: str) -> list[str]:
    document, _ = load(text, "sgpu.yml")
    assert document is not None
    value = Conversion().plain(document.root, None)
    validator = jsonschema.Draft202012Validator(documents()["project"])
    return [error.message for error in validator.iter_errors(value)]


@pytest.mark.parametrize("target", [None, "prod"])
def test_a_project_says_what_functions_take(good: Good, target: str | None) -> None:
    assert good(WHOLE, "sgpu.yml", target).runs == ()


def test_the_documented_blocks_are_fine(good: Good) -> None:
    page = Path(__file__).parents[2] / "docs" / "functions.md"
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        good(block, "sgpu.yml")
        good(block, "sgpu.yml", "prod")
        assert problems(block) == []


def test_an_empty_block_is_fine(good: Good) -> None:
    good("functions:\n", "sgpu.yml")
    good("functions: {}\n", "sgpu.yml")


@pytest.mark.parametrize(
    ("text", "code", "place", "summary", "hint"), [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)  # fmt: skip
def test_a_mistake_is_told(
    bad: Bad, text: str, code: str, place: str, summary: str, hint: str
) -> None:
    found = bad(text, "sgpu.yml")
    assert [(one.code, str(one.place)) for one in found] == [(code, f"sgpu.yml:{place}")]
    assert summary in found[0].summary
    assert hint in (found[0].hint or "")


def test_the_chosen_target_is_laid_over_the_block(bad: Bad) -> None:
    text = "functions: {type: GPU_8xH100}\ntargets: {t: {functions: {gpus: 3}}}\n"
    (found,) = bad(text, "sgpu.yml", "t")
    assert (found.code, str(found.place)) == ("bad_gpu_count", "sgpu.yml:2:33")


def test_an_option_sets_a_field(bad: Bad) -> None:
    (found,) = bad("functions: {gpus: 1}\n", "sgpu.yml", sets=[("functions.gpus", "0")])
    assert found.summary == "`functions.gpus` must be at least 1, not `0`"
    assert bad("functions:\n", "sgpu.yml", sets=[("functions.gpu", "1")])[0].hint == (
        "did you mean `functions.gpus`?"
    )


def test_a_run_file_has_none(bad: Bad) -> None:
    found = bad("name: a\ngpus: 1\ntype: CPU\ncommand: [x]\nfunctions: {gpus: 1}\n")
    assert [(one.code, str(one.place)) for one in found] == [("unknown_key", "run.yaml:5:1")]


def test_every_field_of_a_run_is_there_or_decided_by_the_call() -> None:
    assert not DECIDED.keys() & Functions.model_fields.keys()
    assert list(Functions.model_fields) == [
        "keep_warm",  # of calls alone
        *(name for name in RunConfig.model_fields if name not in DECIDED),
    ]
    assert DECIDED.keys() <= RunConfig.model_fields.keys()
    assert not any(info.is_required() for info in Functions.model_fields.values())


def test_the_schema_says_the_same(bad: Bad) -> None:
    assert problems(WHOLE) == []
    for wrong in ("functions: {gpu: 1}", "functions: {gpus: 0}", "functions: {entrypoint: a.py}"):
        assert bad(wrong, "sgpu.yml")
        assert problems(wrong)
    assert problems("targets: {t: {functions: {gpu: 1}}}")


def test_the_block_is_described() -> None:
    assert describe("project.functions.gpus").type == "whole number"
    assert not describe("project.functions.gpus").required
    assert describe("project.functions.grace").default == "30s"
    assert "of all functions" in describe("project.functions.max_parallel").description
    assert all(child.description for child in describe("project.functions").children)
