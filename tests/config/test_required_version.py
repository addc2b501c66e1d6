"""`requires`: which versions of sgpu may read a project."""

import pytest

from sgpu_decl import __version__
from sgpu_decl.config.required_version import refused_version
from sgpu_decl.text.yaml_reader import load_file
from tests.config.conftest import including, outcome
from tests.reading import clean

RUNS = "runs: {a: {gpus: 1, type: CPU, command: x}}\n"


def project(requires: str, rest: str = RUNS) -> str:
    return f"project: {{name: p}}\nrequires: {requires}\n{rest}"


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('"sgpu>=0.3"', True),
        ("sgpu >= 0.3, < 1", True),
        ('"sgpu~=0.3.1"', True),
        ('"sgpu==0.3.*"', True),
        ('"sgpu>0.3.2"', False),
        ('"sgpu<0.3"', False),
        ('"sgpu!=0.3.2"', False),
    ],
)
def test_a_range_is_one_of_python_packages(text: str, fits: bool) -> None:
    document, _ = load_file(project(text), "sgpu.yml")
    assert document is not None
    assert (refused_version(document.root, "0.3.2") is None) is fits


def test_a_pre_release_counts_by_its_number() -> None:
    document, _ = load_file(project('"sgpu>=0.3"'), "sgpu.yml")
    assert document is not None
    assert refused_version(document.root, "0.4.0rc1") is None
    assert refused_version(document.root, "0.3.0rc1") is not None


def test_another_version_is_refused_before_anything_else_of_the_file() -> None:
    text = project('"sgpu>=99"', "runs: {a: {of_the_future: 1}}\ninclude: [/nowhere]\nnew: {}\n")
    loaded, (finding,) = outcome(text, "sgpu.yml")
    assert loaded is None
    assert (finding.code, str(finding.place)) == ("other_version_required", "sgpu.yml:2:11")
    assert f"this is sgpu {__version__}" in finding.summary


def test_a_file_of_the_right_version_is_read() -> None:
    assert clean(outcome(project(f'"sgpu>={__version__}"'), "sgpu.yml")).runs
    assert clean(outcome(project("null"), "sgpu.yml")).runs


@pytest.mark.parametrize("text", ['"0.3"', "0.3", '">=0.3"', '"other>=1"', '"sgpu>=x"', '"sgpu"'])
def test_what_is_no_range_is_named(text: str) -> None:
    _, findings = outcome(project(text), "sgpu.yml")
    assert [one.code for one in findings] == ["bad_version_range"]


def test_the_range_stands_in_the_root_file() -> None:
    files = including({"a.yml": 'requires: "sgpu>=99"\n' + RUNS})
    _, findings = outcome("project: {name: p}\ninclude: [a.yml]\n", "sgpu.yml", read_included=files)
    assert [one.code for one in findings] == ["root_only"]
    _, findings = outcome('requires: "sgpu>=1"\ngpus: 1\ntype: CPU\ncommand: x\nname: a\n')
    assert [(one.code, one.hint) for one in findings] == [
        ("unknown_key", "write it into the root file of a project, `sgpu.yml`")
    ]
