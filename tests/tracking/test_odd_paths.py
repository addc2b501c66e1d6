"""A project keeps its MLflow store in itself, also if letters of its path mean more in a URI."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sgpu_decl.tracking.store_location import (
    absolute_uri,
    link_plain_folder,
    plain_folder,
    sqlite_file,
)
from tests.cli.conftest import Shell
from tests.support import require

NAMES = ["a?b", "50%", "a%20b", "a#b", "a b:c;é&d", "?mode=ro"]


@pytest.mark.parametrize("name", NAMES)
def test_a_store_is_the_file_that_sqlalchemy_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    require("sqlalchemy")
    from sqlalchemy.engine import make_url

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / name
    (folder / "sub").mkdir(parents=True)
    link_plain_folder(folder)
    link_plain_folder(folder)
    for uri in (None, "sqlite:///mlflow.db", "sqlite:///sub/../mlflow.db"):
        store = absolute_uri(uri, base=folder, home=folder)
        database = make_url(store).database
        assert database is not None
        assert Path(database).resolve() == folder / "mlflow.db"
        ours = sqlite_file(store)
        assert ours is not None
        assert ours.resolve() == folder / "mlflow.db"


def test_a_plain_path_stays(tmp_path: Path) -> None:
    assert plain_folder(tmp_path / "a b#c") == tmp_path / "a b#c"


def test_a_uri_that_mlflow_quoted_is_read(tmp_path: Path) -> None:
    (tmp_path / "a?b").mkdir()
    assert sqlite_file(f"sqlite:///{tmp_path}/a%3Fb/mlflow.db") == tmp_path / "a?b/mlflow.db"


@pytest.mark.mlflow
@pytest.mark.expensive
def test_a_run_logs_into_the_store_of_its_project(sgpu: Shell) -> None:
    folder = sgpu.folder / "a?b%20c#d"
    folder.mkdir()
    (folder / "t.py").write_text(
        "import mlflow\n\ndef main():\n    mlflow.log_metric('loss', 0.5)\n"
        "    mlflow.log_text('hi', 'x.txt')\n"
    )
    (folder / "run.yaml").write_text("name: a\ngpus: 1\ntype: CPU\nentrypoint: t.py:main\n")
    shell = Shell(folder, sgpu.environ)
    assert shell("apply", "-y").code == 0
    assert (folder / ".sgpu/mlflow.db").is_file()
    with closing(sqlite3.connect(folder / ".sgpu/mlflow.db")) as db:
        assert db.execute("SELECT key, value FROM latest_metrics").fetchall() == [("loss", 0.5)]
    assert [file.read_text() for file in folder.glob(".sgpu/mlartifacts/*/artifacts/x.txt")] == [
        "hi"
    ]
    assert sorted(path.name for path in sgpu.folder.iterdir()) == ["a?b%20c#d"]
