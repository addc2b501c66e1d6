from pathlib import Path

import pytest

from sgpu_decl.tracking.store_location import (
    absolute_uri,
    default_uri,
    sqlite_file,
    ui_command,
    without_credentials,
)

HOME = Path("/p/.sgpu")
BASE = Path("/p/sub")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (None, "sqlite:////p/.sgpu/mlflow.db"),
        ("sqlite:///my.db", "sqlite:////p/sub/my.db"),
        ("sqlite:///my.db?timeout=5", "sqlite:////p/sub/my.db?timeout=5"),
        ("sqlite:////abs/my.db", "sqlite:////abs/my.db"),
        ("file:./mlruns", "file:///p/sub/mlruns"),
        ("file:///abs/mlruns", "file:///abs/mlruns"),
        ("mlruns", "file:///p/sub/mlruns"),
        ("http://host:5000/x", "http://host:5000/x"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("databricks", "databricks"),
        ("databricks://profile", "databricks://profile"),
    ],
)
def test_a_tracking_uri_means_the_same_in_every_folder(written: str | None, meant: str) -> None:
    assert absolute_uri(written, base=BASE, home=HOME) == meant


def test_a_sqlite_store_is_known_by_its_file() -> None:
    assert sqlite_file(default_uri(HOME)) == HOME / "mlflow.db"
    assert sqlite_file("sqlite:////p/a.db?mode=ro") is None
    assert sqlite_file("http://host") is None


def test_the_command_of_the_ui_names_the_store_and_its_artifacts() -> None:
    assert ui_command(default_uri(HOME), home=HOME) == (
        "mlflow ui --backend-store-uri sqlite:////p/.sgpu/mlflow.db"
        " --default-artifact-root /p/.sgpu/mlartifacts"
    )
    assert ui_command("sqlite:////a b.db", home=HOME) == (
        "mlflow ui --backend-store-uri 'sqlite:////a b.db'"
    )


@pytest.mark.parametrize("uri", ["https://host", "databricks", "databricks://profile"])
def test_a_server_has_a_page_of_its_own(uri: str) -> None:
    assert ui_command(uri, home=HOME) is None


@pytest.mark.parametrize(
    ("uri", "plain"),
    [
        ("http://ann:pw@host:5000/x", "http://host:5000/x"),
        ("http://host/a@b", "http://host/a@b"),
        ("sqlite:////tmp/a@b/mlflow.db", "sqlite:////tmp/a@b/mlflow.db"),
    ],
)
def test_only_a_name_before_a_host_is_left_out(uri: str, plain: str) -> None:
    assert without_credentials(uri) == plain
