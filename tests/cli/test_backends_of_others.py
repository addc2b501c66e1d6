"""A kind of backend that another package provides: found by its entry point, planned for with its
own options and capabilities."""

from dataclasses import replace
from pathlib import Path

import pytest

from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.storing.sqlite.store import SqliteStore
from tests.cli.conftest import Shell
from tests.storing.conftest import make_launch

MODULE = """
from sgpu_decl.backends.base import Survey
from sgpu_decl.model.backend_kinds import BackendKind, Capabilities
from sgpu_decl.errors import BackendError


def options():
    from pydantic import Field

    from sgpu_decl.config.backend import BackendOptions

    class ClusterOptions(BackendOptions):
        partition: str = Field(description="Where jobs are queued.")
        nodes: int = Field(1, description="How many nodes at most.")

    return ClusterOptions


class ClusterSurvey(Survey):
    def interpreter(self, env, folder):
        return None

    def rules(self, config, places, folder):
        return ()

    def check(self, config, places, folder, *, called):
        return ()


def open_cluster(context):
    raise BackendError("the cluster is not there")


KIND = BackendKind(
    name="cluster",
    options=options,
    capabilities=Capabilities(remote=True, fields=frozenset({"priority"})),
    open=open_cluster,
    survey=lambda context: ClusterSurvey(),
)
OTHER = KIND
"""
RUN = "name: train\ngpus: 1\ntype: CPU\ncommand: [echo, hi]\n"


@pytest.fixture
def installed(sgpu: Shell, tmp_path: Path) -> Shell:
    """sgpu where a package is installed that provides backends, of which two do not load."""
    site = tmp_path / "site"
    (site / "cluster-1.0.dist-info").mkdir(parents=True)
    (site / "cluster-1.0.dist-info" / "METADATA").write_text("Name: cluster-tools\nVersion: 1.0\n")
    (site / "cluster-1.0.dist-info" / "entry_points.txt").write_text(
        "[sgpu.backends]\n"
        "cluster = cluster_backend:KIND\n"
        "wrong = cluster_backend:OTHER\n"
        "broken = cluster_library:KIND\n"
    )
    (site / "cluster_backend.py").write_text(MODULE)
    (site / "cluster_library.py").write_text("import a_library_that_is_not_there\n")
    return replace(sgpu, environ={**sgpu.environ, "PYTHONPATH": str(site)})


def test_a_backend_of_another_package_is_planned_for(installed: Shell) -> None:
    installed.write("run.yaml", RUN + "priority: high\nbackend: {kind: cluster, partition: 1e3}\n")
    answer = installed("plan", "-o", "json")
    assert answer.code == 0, answer.err + answer.out
    (change,) = answer.json["data"]["changes"]
    assert (change["backend"], change["action"]) == ("cluster", "create")
    # Text is taken as written, as in the blocks of our own kinds.
    fields = {field["path"]: field["after"] for field in change["fields"]}
    assert fields["backend.partition"] == "1e3"


@pytest.mark.parametrize(
    ("block", "code", "words"),
    [
        ("backend: {kind: cluster, partition: a, partion: b}", "unknown_key", "unknown key `part"),
        ("backend: {kind: cluster, partition: a, host: b}", "unknown_key", "unknown key `host`"),
        ("backend: cluster", "missing_key", "`backend.partition` is missing"),
        ("backend: {kind: cluster, partition: a, nodes: many}", "wrong_type", "`backend.nodes`"),
        ("backend: {kind: cluster, partition: a}\npool: p", "unsupported_field", "has no `pool`"),
        ("backend: clutser", "unknown_value", "there is no backend `clutser`"),
        ("backend: broken", "broken_backend", "of the package `cluster-tools` does not load"),
        ("backend: {kind: wrong}", "broken_backend", "`cluster_backend:OTHER` is no BackendKind"),
    ],
)
def test_what_is_wrong_with_a_backend_of_another_package_is_told(
    installed: Shell, block: str, code: str, words: str
) -> None:
    installed.write("run.yaml", f"{RUN}{block}\n")
    answer = installed("validate", "-o", "json")
    assert answer.code == 1, answer.out
    (found,) = answer.json["error"]["diagnostics"]
    assert found["code"] == code
    assert words in found["summary"]
    assert found["line"] >= 5


def test_a_field_can_be_set_on_the_command_line(installed: Shell) -> None:
    installed.write("run.yaml", RUN)
    sets = ("--set", "backend=cluster", "--set", "backend.partition=a")
    assert installed("validate", *sets).code == 0
    answer = installed("validate", "-o", "json", *sets[:2], "--set", "backend.partion=a")
    codes = [found["code"] for found in answer.json["error"]["diagnostics"]]
    assert codes == ["unknown_key"]


def test_a_kind_that_is_no_longer_installed_is_told_by_name(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN + "backend: cluster\n")
    answer = sgpu.here("plan", "-o", "json")
    (found,) = answer.json["error"]["diagnostics"]
    assert (found["code"], found["line"]) == ("unknown_value", 5)
    assert "entry points `sgpu.backends`" in found["hint"]


def test_a_run_whose_backend_is_not_installed_is_shown_as_recorded(sgpu: Shell) -> None:
    sgpu.write("run.yaml", "name: a\ngpus: 1\ntype: CPU\ncommand: ['true']\n")
    sgpu.write(".sgpu/default/.keep", "")
    store = SqliteStore(sgpu.folder / ".sgpu" / "default" / "state.db")
    with store.lock("apply", lineage="lin") as writer:
        for name, backend in (("here", "local"), ("gone", "cluster")):
            done = make_launch(name, state=AttemptState.SUCCEEDED)
            attempt = replace(done.attempt, backend=backend)
            writer.begin(done.intent)
            writer.launched(done.intent, replace(done.resource, backend=backend), attempt)
    gone, here = sgpu.data("status")["runs"]
    assert (gone["name"], gone["state"]) == ("gone", "succeeded")
    assert gone["unavailable"] == "there is no backend `cluster`"
    assert (here["name"], "unavailable" in here) == ("here", False)
    shown = sgpu.here("status").out
    assert "as last recorded" in shown
    assert ": there is no backend `cluster`" in shown
    sgpu.done("show", "gone")
    assert "there is no backend `cluster`" in sgpu.exits(1, "logs", "gone").err
