"""What notebooks and debuggers show of the values of a session: a line each."""

from pathlib import Path

from sgpu_decl.api import Location, Session

RUN = """
name: hello
gpus: 1
type: CPU
command: [bash, -c, "exit ${matrix.code}"]
mlflow: {enabled: false}
matrix: {code: [0, 3]}
"""


def test_plans_and_results_have_a_short_repr(project: Path) -> None:
    (project / "run.yaml").write_text(RUN)
    with Session.open(Location(file=Path("run.yaml"))) as session:
        prepared = session.plan()
        assert repr(prepared.plan) == "<Plan: 2 create>"
        assert repr(prepared) == "<Prepared: <Plan: 2 create>>"
        applied = session.apply(prepared)
        assert repr(applied) == '<Applied: launched hello["code=0"]#1, hello["code=3"]#1>'
        ended = repr(session.runs.wait(applied.launched, timeout=60))
        assert ended.startswith('[<hello["code=0"]#1 succeeded>, <hello["code=3"]#1 failed: ')
        assert repr(session.runs.table(applied.launched)) == "<RunTable: 2 runs; code>"
        session.record_ended()
        assert repr(session.apply(session.plan())) == "<Applied: nothing>"
