"""What a plan shows of `_air.py`, the script that starts ranks."""

from tests.cli.conftest import Shell

RUN = "name: train\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\nentrypoint: train.py"
SHOWN = """\
      _air.py  - ENTRY = "script train.py"
      _air.py  + ENTRY = "file_function train.py:main"
"""


def test_a_plan_shows_how_the_script_that_starts_ranks_changes(sgpu: Shell) -> None:
    (sgpu.folder / "train.py").write_text("def main():\n    pass\n")
    run = sgpu.folder / "run.yaml"
    run.write_text(RUN)
    assert "_air.py" not in sgpu.here("plan", "run.yaml").out
    sgpu.done("apply", "-y", "run.yaml")
    run.write_text(f"{RUN}:main\n")
    assert SHOWN in sgpu.here("plan", "run.yaml").out
    run.write_text(f"{RUN}\nargs: [--more]\n")
    assert "_air.py" not in sgpu.here("plan", "run.yaml").out
