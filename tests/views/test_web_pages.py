from dataclasses import replace

import pytest

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.ray_size import RayStatus
from sgpu_decl.views.web_pages import linked_lines, run_pages, shows_links

VIEW = AttemptView(ref=AttemptRef(Address.run("train"), 8), backend="b", state=AttemptState.RUNNING)
SERVER = {"run_id": "r1", "experiment_id": "7", "tracking_uri": "https://mlflow.example.com/"}
PAGE = "https://mlflow.example.com/#/experiments/7/runs/r1"


def test_the_page_of_the_platform_comes_first() -> None:
    links: dict[str, Json] = {"folder": "/f", "mlflow": SERVER, "run": "https://host/#job/1/run/2"}
    view = replace(VIEW, links=links)
    pages = {"run": "https://host/#job/1/run/2", "mlflow": PAGE}
    assert list(run_pages(view, "here").items()) == list(pages.items())
    named: dict[str, Json] = {
        "run_id": "r",
        "experiment_id": "1",
        "url": "https://host/ml/experiments/1/runs/r",
    }
    assert run_pages(replace(VIEW, links={"mlflow": named}), "here") == {"mlflow": named["url"]}


@pytest.mark.parametrize(
    "links",
    [
        {},
        {"folder": "/f", "mlflow": {**SERVER, "tracking_uri": "sqlite:////p/.sgpu/mlflow.db"}},
        {"mlflow": {"error": "no"}},
        {"run": "javascript:alert(1)", "mlflow": {"url": "file:///etc/passwd"}},
        {"run": "https://host/\x1b]8;;x"},
    ],
)
def test_only_addresses_of_the_web_are_pages(links: dict[str, Json]) -> None:
    view = replace(VIEW, links=links)
    assert run_pages(view, "here") == {}


def test_the_dashboard_of_a_run_is_on_its_own_host() -> None:
    ray = RayStatus(version="2", nodes=1, dashboard="http://127.0.0.1:8265", host="node-0")
    view = replace(VIEW, ray=ray)
    assert run_pages(view, "node-0") == {"ray": "http://127.0.0.1:8265"}
    assert run_pages(view, "laptop") == {}


@pytest.mark.parametrize(
    ("environ", "shown"),
    [
        ({}, False),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7402"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "4602"}, False),
        ({"TERM_PROGRAM": "vscode"}, True),
        ({"TERM_PROGRAM": "Apple_Terminal"}, False),
        ({"TERM": "tmux-256color", "VTE_VERSION": "7402"}, False),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/x"}, False),
    ],
)
def test_terminals_that_show_links(environ: dict[str, str], shown: bool) -> None:
    assert shows_links(environ) is shown


def test_a_line_has_a_link_or_an_address_that_fits() -> None:
    lines = ["RUN      STATE", "train#8  \x1b[36mrunning\x1b[0m", "eval#1   queued"]
    links = [("", ""), ("train#8", PAGE), ("eval#1", "")]
    linked = linked_lines(lines, links, escapes=True, width=20)
    assert linked == [
        lines[0],
        f"\x1b]8;;{PAGE}\x1b\\train#8\x1b]8;;\x1b\\  \x1b[36mrunning\x1b[0m",
        lines[2],
    ]
    wide = len("train#8  running  ") + len(PAGE)
    assert linked_lines(lines, links, escapes=False, width=wide)[1] == f"{lines[1]}  {PAGE}"
    assert linked_lines(lines, links, escapes=False, width=wide - 1) == lines
