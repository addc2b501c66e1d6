"""Several files are one project: what each may say, and what two of them may not."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.address import Address
from sgpu_decl.tracking.store_location import absolute_uri
from tests.config.conftest import including, outcome
from tests.reading import clean

ROOT = "project: {name: demo}\ninclude: ['*.yml']\n"
RUN = "{gpus: 1, type: CPU, entrypoint: train.py:main}"
FILE = "gpus: 1\ntype: CPU\nentrypoint: train.py:main\n"


def read(
    texts: dict[str, str], root: str = ROOT, **options: Any
) -> tuple[Loaded | None, tuple[Diagnostic, ...]]:
    return outcome(root, "sgpu.yml", read_included=including(texts), **options)


def project(texts: dict[str, str], root: str = ROOT, **options: Any) -> Loaded:
    return clean(read(texts, root, **options))


def refused(texts: dict[str, str], root: str = ROOT, **options: Any) -> Diagnostic:
    loaded, findings = read(texts, root, **options)
    assert loaded is None
    (finding,) = findings
    assert finding.hint
    return finding


def specs(loaded: Loaded) -> dict[str, Any]:
    return {run.address.name: run.spec.fields for run in loaded.runs}


def test_the_blocks_of_fragments_are_those_of_the_project() -> None:
    quoted = "'${var.n}'"
    loaded = project(
        {
            "environments.yml": "environments: {gpu: {python: 3.11}}\n",
            "runs.yml": f"runs:\n  train: {RUN}\n  eval: {RUN.replace('1', quoted)}\n",
            "jobs.yml": "jobs: {nightly: {run: train, schedule: 0 0 3 * * ?}}\n",
            "variables.yml": "variables: {n: 2}\n",
        },
        root=ROOT + "runs:\n  a: {gpus: 1, type: CPU, command: x, env: gpu}\n",
    )
    assert list(specs(loaded)) == ["a", "train", "eval"]
    assert specs(loaded)["eval"]["gpus"] == 2
    assert specs(loaded)["a"]["env"] == {"python": "3.11", "use": "gpu"}
    assert [job.address.name for job in loaded.jobs] == ["nightly"]
    assert loaded.included == ("environments.yml", "runs.yml", "jobs.yml", "variables.yml")


def test_a_run_file_means_there_what_it_means_alone() -> None:
    text = (
        f"name: train\n{FILE}args: {{lr: '${{var.lr}}'}}\nvariables: {{lr: 0.1}}\n"
        "targets: {prod: {gpus: 4, variables: {lr: 0.3}}}\n"
    )
    for target in (None, "prod"):
        alone, _ = outcome(text, "train.yml", target=target)
        assert alone is not None
        here = project({"train.yml": text}, target=target)
        assert here.runs[0].spec == alone.runs[0].spec
        assert here.runs[0].address == alone.runs[0].address
        assert here.targets == alone.targets == ("prod",)


def test_every_value_keeps_its_place() -> None:
    loaded = project({"runs/train.yml": f"name: train\n{FILE}", "b.yml": f"runs:\n  b: {RUN}\n"})
    train, other = loaded.runs
    assert str(train.places["gpus"]) == "runs/train.yml:2:7"
    assert str(other.places["gpus"]) == "b.yml:2:13"


@pytest.mark.parametrize(
    ("first", "second", "what", "places"),
    [
        (f"runs: {{train: {RUN}}}\n", f"name: train\n{FILE}", "the run `train` is declared",
         ("b.yml:1:7", "a.yml:1:8")),
        (f"name: train\n{FILE}", f"name: train\n{FILE}", "the run `train` is declared",
         ("b.yml:1:7", "a.yml:1:7")),
        ("variables: {n: 1}\n", "variables: {n: 1}\n", "the variable `n` is declared",
         ("b.yml:1:13", "a.yml:1:13")),
        ("environments: {e: {python: 3.11}}\n", "environments: {e: {}}\n",
         "the environment `e` is declared", ("b.yml:1:16", "a.yml:1:16")),
        ("jobs: {j: {run: a}}\n", "jobs: {j: {run: a}}\n", "the job `j` is declared",
         ("b.yml:1:8", "a.yml:1:8")),
        ("functions: {gpus: 1}\n", "functions: {gpus: 1}\n", "`functions.gpus` is set",
         ("b.yml:1:13", "a.yml:1:13")),
        ("targets: {t: {runs: {a: {gpus: 2}}}}\n", "targets: {t: {runs: {a: {gpus: 2}}}}\n",
         "`targets.t.runs.a.gpus` is set", ("b.yml:1:26", "a.yml:1:26")),
    ],
)  # fmt: skip
def test_what_two_files_say_is_an_error_with_both_places(
    first: str, second: str, what: str, places: tuple[str, str]
) -> None:
    root = ROOT + f"runs:\n  a: {RUN}\n"
    finding = refused({"a.yml": first, "b.yml": second}, root)
    assert finding.code == "declared_twice"
    assert finding.summary == f"{what} in two files"
    (related,) = finding.related
    assert (str(finding.place), str(related.place)) == places


def test_a_run_of_the_root_file_is_not_declared_again() -> None:
    finding = refused({"a.yml": f"runs: {{a: {RUN}}}\n"}, ROOT + f"runs:\n  a: {RUN}\n")
    assert (str(finding.place), str(finding.related[0].place)) == ("a.yml:1:8", "sgpu.yml:4:3")


def test_targets_of_several_files_are_one() -> None:
    texts = {
        "a.yml": "targets: {prod: {runs: {a: {gpus: 4}}}, dev: null}\n",
        "b.yml": "targets: {prod: {runs: {a: {timeout: 2h}}}, dev: {runs: {a: {gpus: 2}}}}\n",
    }
    root = ROOT + f"runs:\n  a: {RUN}\n"
    prod = specs(project(texts, root, target="prod"))["a"]
    assert (prod["gpus"], prod["timeout"]) == (4, "2h")
    assert specs(project(texts, root, target="dev"))["a"]["gpus"] == 2


@pytest.mark.parametrize("key", ["project: {name: x}", "include: [more.yml]", "mode: production"])
def test_what_belongs_to_the_root_file_is_refused_elsewhere(key: str) -> None:
    finding = refused({"a.yml": f"{key}\nruns: {{a: {RUN}}}\n"})
    assert finding.code == "root_only"
    assert str(finding.place) == "a.yml:1:1"
    assert f"`{key.partition(':')[0]}`" in finding.summary


def test_the_mode_of_a_target_belongs_to_the_root_file() -> None:
    finding = refused({"a.yml": "targets: {dev: {mode: development}}\n"})
    assert (finding.code, str(finding.place)) == ("root_only", "a.yml:1:17")


def test_an_unknown_key_of_a_fragment_is_found_in_its_file() -> None:
    finding = refused({"a.yml": f"runs: {{a: {RUN}}}\nenvironment: {{}}\n"})
    assert (finding.code, str(finding.place)) == ("unknown_key", "a.yml:2:1")
    assert finding.hint == "did you mean `environments`?"


def test_an_included_run_has_a_name_of_its_own() -> None:
    assert refused({"a.yml": FILE}).code == "missing_key"
    finding = refused({"a.yml": f"name: a-${{var.n}}\n{FILE}variables: {{n: 1}}\n"})
    assert (finding.code, str(finding.place)) == ("bad_name", "a.yml:1:7")


def test_the_name_of_an_included_run_is_checked() -> None:
    finding = refused({"a.yml": f"name: a b\n{FILE}"})
    assert (finding.code, str(finding.place)) == ("bad_name", "a.yml:1:7")


@pytest.mark.parametrize(
    ("text", "code"), [("- a\n", "not_a_mapping"), ("a: [\n", "yaml_syntax"), ("", "empty_file")]
)
def test_a_file_that_cannot_be_read_is_named(text: str, code: str) -> None:
    finding = refused({"a.yml": text, "b.yml": f"runs: {{b: {RUN}}}\n"})
    assert finding.code == code
    assert finding.place is not None
    assert finding.place.file == "a.yml"


def test_the_mistakes_of_all_files_are_shown_at_once() -> None:
    _, findings = read({"a.yml": "- a\n", "b.yml": "- b\n"})
    assert [one.place.file for one in findings if one.place] == ["a.yml", "b.yml"]
    _, findings = read({"a.yml": f"name: a\n{FILE}gpu: 1\n", "b.yml": f"name: b\n{FILE}gpu: 1\n"})
    assert [str(one.place) for one in findings] == ["a.yml:5:1", "b.yml:5:1"]


@pytest.mark.parametrize("path", ["state.path", "mode", "project.name", "targets.t.mode"])
def test_no_option_says_which_state_a_project_has(path: str) -> None:
    finding = refused({}, sets=[(path, "other")])
    assert (finding.code, str(finding.place)) == ("unknown_path", f"--set {path}")


def test_neither_options_nor_targets_include_files() -> None:
    finding = refused({}, sets=[("include", "[more.yml]")])
    assert (finding.code, str(finding.place)) == ("unknown_path", "--set include")
    assert refused({}, ROOT + "targets: {t: {include: [more.yml]}}\n").code == "unknown_key"


@pytest.mark.parametrize(
    "pattern",
    ["../a.yml", "/a.yml", "~/a.yml", "a/../../b.yml", ".git/a.yml", "x/.sgpu/*.yml", "runs/",
     "'${var.x}.yml'", "'.'"],
)  # fmt: skip
def test_a_pattern_that_names_no_file_of_the_project_is_refused(pattern: str) -> None:
    finding = refused({}, f"project: {{name: p}}\ninclude: [{pattern}]\n")
    assert finding.code == "include_invalid"
    assert finding.place is not None
    assert finding.place.line == 2


@pytest.mark.parametrize("include", ["a.yml", "[{a: 1}]", "[[a.yml]]", "{a: b}", "[null]"])
def test_an_include_that_is_no_list_of_text_is_refused(include: str) -> None:
    assert refused({}, f"project: {{name: p}}\ninclude: {include}\n").code == "wrong_type"


def test_files_are_asked_for_once_and_only_if_there_are_patterns() -> None:
    asked: list[int] = []

    def count(patterns: Any) -> Any:
        asked.append(len(patterns))
        return including({})(patterns)

    outcome("project: {name: p}\nruns: {}\n", "sgpu.yml", read_included=count)
    outcome("name: a\n" + FILE, "run.yaml", read_included=count)
    assert asked == []
    outcome(ROOT, "sgpu.yml", read_included=count)
    assert asked == [1]


PATHS = """\
code: {root: src}
env: {requirements: req.txt, python: ../venv/bin/python}
"""


def test_relative_paths_mean_the_folder_of_their_file() -> None:
    loaded = project({"runs/deep/a.yml": f"name: a\n{FILE}{PATHS}"})
    assert specs(loaded)["a"]["code"] == {"root": "runs/deep/src"}
    assert specs(loaded)["a"]["env"] == {
        "requirements": "runs/deep/req.txt",
        "python": "runs/venv/bin/python",
    }


def test_the_paths_of_a_target_and_of_an_environment_mean_the_folders_of_theirs() -> None:
    loaded = project(
        {
            "runs/a.yml": f"name: a\n{FILE}env: gpu\n",
            "env/gpu.yml": "environments: {gpu: {requirements: gpu.txt}}\n",
            "targets/prod.yml": "targets: {prod: {runs: {a: {code: {root: ../src}}}}}\n",
        },
        target="prod",
    )
    assert specs(loaded)["a"]["env"]["requirements"] == "env/gpu.txt"
    assert specs(loaded)["a"]["code"] == {"root": "src"}


@pytest.mark.parametrize(
    ("written", "moved"),
    [
        ("./store", "./team/store"),
        ("store", "./team/store"),
        ("../databricks", "./databricks"),
        ("sqlite:///a.db", "sqlite:///team/a.db"),
        ("sqlite:///../a.db?timeout=1", "sqlite:///a.db?timeout=1"),
        ("file:store", "file:team/store"),
        *((text, text) for text in (
            "databricks", "https://server:5000", "/mnt/store", "~/store", "sqlite:////mnt/a.db",
            "sqlite:///:memory:", "file:///mnt/store", "postgresql://db/x",
        )),
    ],
)  # fmt: skip
def test_a_store_of_mlflow_means_the_folder_of_its_file(written: str, moved: str) -> None:
    text = f"name: a\n{FILE}mlflow: {{tracking_uri: '{written}'}}\n"
    assert specs(project({"team/a.yml": text}))["a"]["mlflow"]["tracking_uri"] == moved
    base, home = Path("/p"), Path("/p/.sgpu")
    there = absolute_uri(written, base=base / "team", home=home)
    here = absolute_uri(moved, base=base, home=home)
    assert os.path.normpath(here) == os.path.normpath(there)


def test_a_secret_and_a_place_of_artifacts_mean_the_folder_of_their_file() -> None:
    secrets = "env: {secrets: {A: 'file:t.txt', B: 'file:/t', C: env:C}}\n"
    text = f"name: a\n{FILE}{secrets}mlflow: {{artifact_location: files}}\n"
    spec = specs(project({"team/a.yml": text}))["a"]
    assert spec["mlflow"] == {"artifact_location": "./team/files"}
    assert spec["env"]["secrets"] == {"A": "file:team/t.txt", "B": "file:/t", "C": "env:C"}


def test_the_paths_of_options_and_of_the_root_file_stay() -> None:
    texts = {"runs/a.yml": f"name: a\n{FILE}env: {{requirements: a.txt}}\n"}
    loaded = project(texts, sets=[("runs.a.env.requirements", "b.txt")])
    assert specs(loaded)["a"]["env"]["requirements"] == "b.txt"


def test_a_path_with_a_reference_means_the_folder_of_its_field() -> None:
    text = f"name: a\n{FILE}env: {{requirements: '${{var.r}}'}}\n"
    root = ROOT + "variables: {r: x.txt}\n"
    assert specs(project({"runs/a.yml": text}, root))["a"]["env"]["requirements"] == "runs/x.txt"
    loaded = project({"runs/a.yml": text}, root, variables=[("r", "/x.txt")])
    assert specs(loaded)["a"]["env"]["requirements"] == "/x.txt"


@pytest.mark.parametrize(
    ("path", "text", "root"),
    [
        ("runs/a.yml", f"name: a\n{FILE}", {"root": "runs"}),
        ("b/a.yml", f"name: a\n{FILE}code: {{exclude: [x]}}\n", {"root": "b", "exclude": ["x"]}),
        ("runs/a.yml", f"name: a\n{FILE}code:\n", {"root": "runs"}),
        ("runs/a.yml", f"name: a\n{FILE}code: {{root: ..}}\n", None),
        ("a.yml", f"name: a\n{FILE}", None),
        ("runs/a.yml", f"runs: {{a: {RUN}}}\n", None),
    ],
    ids=["run file", "with a block", "with nothing", "its own root", "beside the root", "fragment"],
)  # fmt: skip
def test_the_code_of_a_run_file_lies_in_its_folder(path: str, text: str, root: object) -> None:
    assert specs(project({path: text}))["a"].get("code") == root


def test_the_cells_of_a_matrix_have_the_paths_of_their_file() -> None:
    text = f"name: a\n{FILE}matrix: {{r: [x, y]}}\nenv: {{requirements: '${{matrix.r}}.txt'}}\n"
    loaded = project({"runs/a.yml": text})
    assert [run.config.env.requirements for run in loaded.runs] == ["runs/x.txt", "runs/y.txt"]
    assert {run.config.code.root for run in loaded.runs} == {"runs"}


def test_the_order_of_files_and_runs_does_not_matter() -> None:
    texts = {name: f"name: {name[0]}\n{FILE}" for name in ("a.yml", "b.yml", "c.yml")}
    one = project(texts)
    assert one.config_digest == project(dict(reversed(texts.items()))).config_digest
    assert one.runs[0].address == Address.run("a")


@pytest.fixture
def long_file() -> Callable[[int], str]:
    return lambda size: "runs: {}\n#" + "x" * size + "\n"


def test_all_files_together_have_the_limits_of_a_project(long_file: Callable[[int], str]) -> None:
    texts = {f"{number}.yml": long_file(4 << 20) for number in range(3)}
    finding = refused(texts)
    assert (finding.code, str(finding.place)) == ("file_too_large", "sgpu.yml:1:1")
