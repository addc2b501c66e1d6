"""What is told of a run that the platform started again on new nodes."""

import json

import pytest

from sgpu_decl.cli.main import main
from tests.backends.databricks.bench import DatabricksBench


@pytest.mark.expensive
def test_a_run_that_lost_a_node_shows_its_restart(
    bench: DatabricksBench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench.declare(more="retry: {max: 1}\n")
    bench.code("import time\ndef main(n):\n    print('up', flush=True)\n    time.sleep(2)\n")
    bench.hook("lose_node", node=0, after_lines=1)
    bench.run()
    monkeypatch.chdir(bench.project)

    def said(*words: str) -> str:
        capsys.readouterr()
        assert main(list(words)) == 0
        return capsys.readouterr().out

    (run,) = json.loads(said("status", "-o", "json"))["data"]["runs"]
    assert (run["state"], run["restart"]) == ("succeeded", 1)
    assert said("status").splitlines()[1].endswith("  1 restart")
    shown = said("show", "hello")
    assert "hello#1 succeeded" in shown
    assert ", 1 restart\n" in shown
    assert shown.splitlines()[-1].endswith(", 1 restart; reason: first run")
