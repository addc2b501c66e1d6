"""The registry of codes: it is what the source emits, and its examples and pages are true."""

import os
import re
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

import sgpu_decl
from sgpu_decl.api import Session
from sgpu_decl.diagnostics.codes import CodeEntry, families, registry
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.errors import InvalidInput
from sgpu_decl.planning.location import Location
from tests.diagnostics.emitted_codes import Emitted, emitted
from tests.docs.pages import script

NEEDED = {"name": "train", "gpus": "1", "type": "CPU", "command": "[python, train.py]"}
"""What every run needs, for examples that leave it out."""


@cache
def source() -> Emitted:
    return emitted()


def test_every_code_in_the_source_can_be_followed_to_its_text() -> None:
    assert sorted(source().unknown) == []


def test_every_code_that_is_emitted_is_in_the_registry() -> None:
    missing = source().codes - set(registry())
    assert {code: sorted(source().places[code]) for code in sorted(missing)} == {}


def test_every_code_of_the_registry_is_emitted() -> None:
    assert sorted(set(registry()) - source().codes) == []


def test_the_registry_has_the_severities_and_exit_codes_of_the_source() -> None:
    order = list(Severity)
    found = {
        code: (
            tuple(level for level in order if level in source().severities.get(code, ())),
            source().exits.get(code, set()),
        )
        for code in source().codes
    }
    said = {
        code.id: (code.severities, set() if code.exit_code is None else {code.exit_code})
        for code in registry().values()
    }
    assert {id_: said[id_] for id_ in said if said[id_] != found.get(id_)} == {}


def test_every_code_is_explained_in_whole_sentences() -> None:
    for code in registry().values():
        assert re.fullmatch(r"(sgpu |uv |psutil |`|[A-Z]).*\.", code.meaning), code.meaning
        assert re.fullmatch(r"(`|[A-Z]).*\.", code.solution), code.solution


def test_only_explain_and_the_tab_key_read_the_registry() -> None:
    package = Path(sgpu_decl.__file__).parent
    readers = re.compile(r"diagnostics\.codes import")
    found = [file for file in package.rglob("*.py") if readers.search(file.read_text())]
    assert sorted(str(file.relative_to(package)) for file in found) == [
        "cli/completion_values.py",
        "cli/explain.py",
    ]


def complete(lines: str) -> str:
    """The example with what every run needs, and that it leaves out."""
    keys = set(re.findall(r"^(\w+):", lines, re.MULTILINE))
    if keys & {"runs", "jobs", "environments"}:
        return f"project: {{name: demo}}\n{lines}"
    if "entrypoint" in keys:
        keys.add("command")
    return lines + "".join(f"{key}: {NEEDED[key]}\n" for key in NEEDED if key not in keys)


def codes_of(session: Session, wanted: str) -> list[str]:
    """The codes that `sgpu validate` shows; if the wanted one is not there, `sgpu plan` too."""
    try:
        shown = [found.code for found in session.check().findings]
        if wanted not in shown:
            shown += [check.code for check in session.plan().plan.checks]
    except InvalidInput as error:
        return [found.code for found in error.diagnostics]
    return shown


@pytest.mark.parametrize(
    "code", [pytest.param(code, id=code.id) for code in registry().values() if code.yaml]
)
def test_an_example_gives_its_code(code: CodeEntry, tmp_path: Path) -> None:
    assert code.yaml is not None
    text = complete(code.yaml)
    file = tmp_path / ("sgpu.yml" if text.startswith("project:") else "run.yaml")
    file.write_text(text)
    (tmp_path / "train.py").write_text("def main(epochs=1, lr=0.1):\n    pass\n")
    environ = {**os.environ, "HF_TOKEN": "a"}
    with patch.dict(os.environ, environ):
        shown = codes_of(Session.open(Location(file=file, project=tmp_path)), code.id)
    assert code.id in shown


def test_the_site_has_each_code_on_one_page() -> None:
    text = "\n".join(script("code_pages").pages().values())
    assert sorted(re.findall(r"^## `(\w+)`$", text, re.MULTILINE)) == sorted(registry())


def test_a_family_is_neither_a_code_nor_all_codes() -> None:
    sizes = {family: len(codes) for family, codes in families().items()}
    assert {family: size for family, size in sizes.items() if not 4 <= size <= 30} == {}
