"""What a plan says of the code against the environment that its ranks find."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.api import PlanOptions, Session
from sgpu_decl.diagnostics.diagnostic import Diagnostic

Planned = Callable[..., list[tuple[str, str, str]]]

HEAD = "name: a\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\n"
ENTRY = HEAD + "entrypoint: train.py:main\n"
TRAIN = "import einops\nimport click\n\ndef main():\n    import some_tool\n    import timm\n"


@pytest.fixture
def checks(
    folder: Path, open_file: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> Planned:
    """Plan a run file; its checks by id, with the place, without the interpreter's."""
    monkeypatch.chdir(folder)

    def planned(text: str, code: str = "def main():\n    pass\n") -> list[tuple[str, str, str]]:
        (folder / "run.yaml").write_text(text)
        (folder / "train.py").write_text(code)
        plan = open_file().plan(PlanOptions()).plan
        return [_short(check) for check in plan.checks if check.code != "interpreter"]

    return planned


def _short(check: Diagnostic) -> tuple[str, str, str]:
    place = check.place
    where = f"{place.file.rpartition('/')[2]}:{place.line}" if place else ""
    return (check.code, str(check.severity), where)


def test_packages_that_the_interpreter_lacks(checks: Planned) -> None:
    assert checks(ENTRY, TRAIN) == [
        ("package_missing", "warning", "train.py:1"),
        ("package_missing", "warning", "train.py:5"),
        ("package_missing", "warning", "train.py:6"),
    ]


def test_what_is_guarded_or_found_elsewhere_is_silent(checks: Planned) -> None:
    guarded = TRAIN.replace("import einops", "try:\n    import einops\nexcept ImportError: pass")
    assert len(checks(ENTRY, guarded)) == 2
    assert checks(ENTRY + "env: {variables: {PYTHONPATH: /opt/more}}\n", TRAIN) == []


def test_installing_in_the_run(checks: Planned) -> None:
    command = HEAD + "command: |\n  pip install einops\n  python train.py\n"
    assert checks(command) == [("install_in_run", "warning", "run.yaml:5")]
    code = "import os\nos.system('pip install einops')\ndef main(): pass\n"
    assert checks(ENTRY, code) == [("install_in_run", "warning", "train.py:2")]


def test_a_base_on_this_machine_is_only_worth_knowing(checks: Planned) -> None:
    known = checks(ENTRY + "env:\n  base: gpu-4\n")
    assert [item[:2] for item in known] in ([], [("base_python", "info")])
    for name, severity in ("gpu-44", "warning"), ("gpu4", "error"):
        unknown = checks(ENTRY + f"env:\n  base: {name}\n")
        assert unknown == [("unknown_base", severity, "run.yaml:7")]


def test_cells_of_a_matrix_share_a_finding(checks: Planned) -> None:
    text = ENTRY + "args: {}\nmatrix: {lr: [1, 2, 3]}\n"
    code = "import einops\ndef main(lr): pass\n"
    assert checks(text, code) == [("package_missing", "warning", "train.py:1")]
