"""What `import sgpu_decl` and its public modules bring in, and what they cost."""

import json
import subprocess
import sys

import pytest

import sgpu_decl
from tests.support import PATIENCE

HEAVY = {"torch", "mlflow", "pydantic", "yaml", "click", "rich", "cloudpickle", "jinja2"}


def imported(statement: str) -> set[str]:
    """The names of all modules that are there after a statement in a new interpreter."""
    source = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return set(json.loads(done.stdout))


def test_the_package_alone_loads_none_of_its_modules() -> None:
    names = imported("import sgpu_decl; dir(sgpu_decl)")
    assert {name for name in names if name.startswith("sgpu_decl")} == {"sgpu_decl"}


@pytest.mark.parametrize(
    ("statement", "ours"),
    [
        ("from sgpu_decl import runtime", {"runtime"}),
        ("import sgpu_decl; sgpu_decl.runtime.get_global_rank()", {"runtime"}),
        ("from sgpu_decl.compute import GPUType", {"compute", "model", "model.gpu"}),
        ("import sgpu_decl; sgpu_decl.compute.GPUType.A10", {"compute", "model", "model.gpu"}),
    ],
)
def test_public_modules_load_when_named_and_bring_next_to_nothing(
    statement: str, ours: set[str]
) -> None:
    names = imported(statement)
    loaded = {name for name in names if name.startswith("sgpu_decl.")}
    assert loaded == {f"sgpu_decl.{name}" for name in ours}
    assert not {name.partition(".")[0] for name in names} & HEAVY


def test_public_names_are_listed_and_others_are_errors() -> None:
    assert set(sgpu_decl.__all__) <= set(dir(sgpu_decl))
    with pytest.raises(AttributeError, match="`sgpu_decl` has no attribute `runtimes`"):
        sgpu_decl.runtimes  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        from sgpu_decl import computes  # type: ignore[attr-defined]  # noqa: F401
