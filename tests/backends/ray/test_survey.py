"""What a plan says of a run on a Ray cluster, with the cluster's recorded answers."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.api import Location, Session
from sgpu_decl.backends.ray.placement import RayPlacement
from sgpu_decl.backends.ray.planning.cluster_checks import cluster_findings
from sgpu_decl.backends.ray.planning.cluster_nodes import ClusterState
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.plan import Plan
from sgpu_decl.storing.sqlite.store import SqliteStore
from sgpu_decl.views.plan_text import render
from tests.backends.ray.answers import Answers, answering, recorded
from tests.mounts import bound, mount

RUN = "name: train\ntype: {type}\ngpus: {gpus}\nentrypoint: train.py:main\n"
CODE = "def main():\n    pass\n"
NODES = "/api/v0/nodes"
ROWS = ("data", "result", "result")
MACHINES = ("data", "summary")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(CODE)
    return folder


@pytest.fixture
def cluster() -> Iterator[Answers]:
    """A head with 8 H100 and 3 CPUs, of which 5 and 1 are free, and a node with 4 H100 and 4 CPUs,
    of which 1 and 2 are free."""
    with answering(recorded("2.60.0")) as answers:
        yield answers


Planned = Callable[..., Plan]


@pytest.fixture
def planned(project: Path, cluster: Answers) -> Planned:
    def plan(
        gpus: int = 1, *, kind: str = "H100", backend: str = "", more: str = "", url: str = ""
    ) -> Plan:
        storage = "" if "storage:" in backend else f"  storage: {project}\n"
        text = RUN.format(type=kind, gpus=gpus)
        text += f"backend:\n  kind: ray\n  address: {url or cluster.url}\n{backend}{storage}{more}"
        (project / "run.yaml").write_text(text)
        with Session.open(Location(project=project)) as session:
            return session.plan().plan

    return plan


def checks(plan: Plan) -> dict[str, Diagnostic]:
    return {check.code: check for check in plan.checks}


def placement(plan: Plan) -> RayPlacement:
    launch = plan.changes[0].launch
    assert launch is not None
    return RayPlacement.from_id(launch.inputs.placement or "")


HALF = "  resources_per_rank: {CPU: 0.5}\n"


def test_a_plan_asks_at_most_five_times(cluster: Answers, planned: Planned) -> None:
    planned(12, backend=HALF)
    assert 0 < len(cluster.requests) <= 5
    assert cluster.connections == 1


def test_a_plan_with_a_token_asks_at_most_five_times(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t-1")
    with answering(recorded("2.60.0"), token="t-1") as secured:
        found = checks(planned(6, backend=HALF, url=secured.url))
    assert "not_now" in found
    assert "GET /api/jobs/" in dict(secured.requests)
    assert len(secured.requests) == 5, secured.requests


def test_a_plan_has_its_cluster_although_the_first_answer_to_each_question_is_lost(
    cluster: Answers, planned: Planned
) -> None:
    expected = placement(planned())
    lost: set[str] = set()

    def answer(path: str, content: object) -> Callable[[], object]:
        def once_lost() -> object:
            if path in lost:
                return content
            lost.add(path)
            return "end"

        return once_lost

    cluster.by_path = {path: answer(path, content) for path, content in cluster.by_path.items()}
    plan = planned()
    assert placement(plan) == expected
    assert plan.complete
    assert NODES in lost


def test_a_cluster_with_two_spellings_is_asked_once(
    project: Path, cluster: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"{cluster.url}/")
    run = "{type: CPU, gpus: 1, command: [x], mlflow: {enabled: false}, backend: {kind: ray"
    text = (
        f"project: {{name: p}}\nruns:\n  a: {run}, address: '{cluster.url}'}}}}\n  b: {run}}}}}\n"
    )
    (project / "sgpu.yml").write_text(text)
    with Session.open(Location(project=project)) as session:
        plan = session.plan().plan
    placements = {change.launch.inputs.placement for change in plan.changes if change.launch}
    assert len(placements) == 1
    assert len(cluster.requests) == 4, cluster.requests


@pytest.mark.parametrize(
    ("gpus", "backend", "shape"),
    [
        (1, "", "1 node x 1 rank, spread"),
        (2, "", "1 node x 2 ranks, spread"),
        (6, HALF, "1 node x 6 ranks, spread"),
        (8, HALF, "2 nodes x 4 ranks, spread"),  # the head has CPUs for 6 ranks
        (4, "  ranks_per_node: 2\n", "2 nodes x 2 ranks, spread"),
        (12, "  strategy: pack\n  resources_per_rank: {CPU: 0.25}\n", "3 groups x 4 ranks, pack"),
    ],
)
def test_the_largest_groups_are_taken_that_the_cluster_has_nodes_for(
    planned: Planned, gpus: int, backend: str, shape: str
) -> None:
    found = checks(planned(gpus, backend=backend))["ray_placement"]
    words = found.summary.replace("\N{MULTIPLICATION SIGN}", "x")
    assert words.startswith(f"{shape}, on `http://127.0.0.1:")


def test_the_shape_does_not_change_with_the_load(cluster: Answers, planned: Planned) -> None:
    busy = placement(planned(6, backend=HALF))
    cluster.by_path["/nodes"]["data"]["nodeLogicalResources"] = {}
    assert placement(planned(6, backend=HALF)) == busy


def test_the_placement_is_what_ray_is_asked_for(planned: Planned) -> None:
    backend = "  resources_per_rank: {CPU: 0.5, memory: 1GB, ssd_fast: 0.25}\n"
    backend += "  labels: {market: spot}\n"
    found = placement(planned(4, backend=backend))
    assert (found.nodes, found.ranks_per_node, found.scales) == (1, 4, False)
    assert found.bundle == {"CPU": 2.0, "GPU": 4, "memory": 4_000_000_000, "ssd_fast": 1.0}
    assert found.labels == {"market": "spot", "ray.io/accelerator-type": "H100"}


def test_a_type_is_held_by_its_label_or_its_resource(cluster: Answers, planned: Planned) -> None:
    assert placement(planned(1)).labels == {"ray.io/accelerator-type": "H100"}
    cluster.by_path |= recorded("2.49.1")
    assert placement(planned(1)).labels == {"ray.io/accelerator-type": "H100"}
    a10 = placement(planned(1, kind="A10"))
    assert (a10.labels, a10.bundle["accelerator_type:A10G"]) == ({}, 0.001)


def test_a_type_that_devices_alone_tell_is_held_by_the_nodes(
    cluster: Answers, planned: Planned
) -> None:
    rows = cluster.by_path[NODES]["data"]["result"]["result"]
    for row in rows:
        row["labels"].pop("ray.io/accelerator-type")
    machines = cluster.by_path["/nodes"]["data"]["summary"]
    for machine, name in zip(machines, ("RTX A6000", "GeForce RTX 4090"), strict=True):
        machine["gpus"] = [{"name": f"NVIDIA {name}", "memoryTotal": 24564}]
    head = next(row["node_id"] for row in rows if row["is_head_node"])
    assert placement(planned(1, kind="RTX_A6000")).labels == {"ray.io/node-id": head}


def test_any_type_is_one_type_for_all_groups(cluster: Answers, planned: Planned) -> None:
    cluster.by_path |= recorded("2.49.1")  # 8 H100 and 4 A10
    plan = planned(2, kind="GPU", backend="  ranks_per_node: 1\n  strategy: pack\n")
    assert ", pack, with " in checks(plan)["ray_placement"].summary
    two = planned(2, kind="GPU", backend="  ranks_per_node: 1\n")  # one node of each type
    words = checks(two)["never_fits"].summary
    assert words.startswith("needs 2 nodes with 1 GPU of one type; the cluster has ")
    assert ("8 H100 (vm (" in words, "4 A10 (vm (" in words) == (True, True)


def test_models_that_no_table_has_are_types_too(cluster: Answers, planned: Planned) -> None:
    for row in cluster.by_path[NODES]["data"]["result"]["result"]:
        del row["labels"]["ray.io/accelerator-type"]
        row["resources_total"] |= {"CPU": 64, "GPU": 4}
    machines = cluster.by_path["/nodes"]["data"]["summary"]
    for machine, name in zip(machines, ("Foo Mega 1", "Bar Ultra 2"), strict=True):
        machine["gpus"] = [{"name": name, "memoryTotal": 8000}]
    cluster.by_path["/nodes"]["data"]["nodeLogicalResources"] = {}
    both = checks(planned(8, kind="GPU", backend="  ranks_per_node: 4\n"))["never_fits"].summary
    assert "needs 2 nodes with 4 GPUs of one type; the cluster has 4 GPUs `" in both
    assert ("`Foo Mega 1` (vm (" in both, "`Bar Ultra 2` (vm (" in both) == (True, True)
    one = planned(4, kind="GPU", backend="  ranks_per_node: 2\n  strategy: pack\n")
    assert ", with Foo Mega 1, on" in checks(one)["ray_placement"].summary
    assert set(placement(one).labels) == {"ray.io/node-id"}


def test_ranks_without_gpus_take_cpus(planned: Planned) -> None:
    found = placement(planned(4, kind="CPU"))
    assert (found.nodes, found.ranks_per_node) == (1, 4)
    assert (dict(found.bundle), dict(found.labels)) == ({"CPU": 4}, {})


def test_what_never_fits_says_the_best_that_there_is(planned: Planned) -> None:
    found = checks(planned(16, backend="  ranks_per_node: 8\n  resources_per_rank: {CPU: 0.1}\n"))
    assert found["never_fits"].severity == "error"
    words = found["never_fits"].summary
    assert words.startswith("needs 2 nodes with 8 H100; vm (")
    assert words.count("has 8") == words.count("has 4") == 1
    assert found["never_fits"].place.line == 3
    assert "ray_placement" not in found


PACK = "write `strategy: pack` in `backend`"
OUT = "leave `ranks_per_node` out"
LESS = (
    "ask for less, or use another cluster; write `autoscaling: true` in `backend` if the cluster "
)


@pytest.mark.parametrize(
    ("gpus", "ranks_per_node", "cpus", "way_out"),
    [
        (12, None, 0.1, f"{PACK}: 3 groups \N{MULTIPLICATION SIGN} 4 ranks, pack"),
        (12, 4, 0.1, f"{PACK}: 3 groups \N{MULTIPLICATION SIGN} 4 ranks, pack"),
        (8, 8, 0.5, f"{OUT}: 2 nodes \N{MULTIPLICATION SIGN} 4 ranks, spread"),
        (12, 12, 0.1, f"{PACK}, and {OUT}: 3 groups \N{MULTIPLICATION SIGN} 4 ranks, pack"),
        (13, None, 0.1, f"{LESS}starts nodes"),
    ],
)
def test_what_never_fits_as_written_says_how_its_ranks_would_fit(
    planned: Planned, gpus: int, ranks_per_node: int | None, cpus: float, way_out: str
) -> None:
    backend = f"  resources_per_rank: {{CPU: {cpus}}}\n"
    if ranks_per_node is not None:
        backend += f"  ranks_per_node: {ranks_per_node}\n"
    assert checks(planned(gpus, backend=backend))["never_fits"].hint == way_out


def test_labels_that_no_node_has_together(cluster: Answers, planned: Planned) -> None:
    head, node = cluster.by_path[NODES]["data"]["result"]["result"]
    head["labels"]["zone"], node["labels"]["area"] = "a", "b"
    both = "  labels: {zone: a, area: b}\n" + HALF
    for kind, what in (("H100", "1 H100"), ("CPU", "0.5 CPUs"), ("GPU", "1 GPU")):
        found = checks(planned(1, kind=kind, backend=both))["never_fits"]
        assert f"needs 1 node with {what} and the labels `zone: a` and `area: b`; vm (" in (
            found.summary
        )
        assert ("has `zone: a`, vm (" in found.summary, found.place.line) == (True, 8)
        assert found.summary.endswith("has `area: b`")
    node["labels"]["ray.io/accelerator-type"] = "A10G"
    found = checks(planned(1, backend="  labels: {area: b}\n" + HALF))["never_fits"]
    assert "1 H100 and the label `area: b`; the nodes with that label have 4 A10 (vm (" in (
        found.summary
    )
    assert found.place.line == 8
    absent = planned(1, kind="L4", backend="  labels: {area: b}\n" + HALF)
    assert checks(absent)["never_fits"].place.line == 2  # the label is not what is wrong


def test_resources_that_no_node_has_together(cluster: Answers, planned: Planned) -> None:
    head, node = cluster.by_path[NODES]["data"]["result"]["result"]
    head["resources_total"] |= {"GPU": 8, "CPU": 2}
    node["resources_total"] |= {"GPU": 1, "CPU": 32}
    found = checks(planned(4, backend="  ranks_per_node: 4\n"))["never_fits"]
    assert found.summary.startswith("needs 1 node with 4 H100 and 4 CPUs; vm (")
    assert " has 8 H100 and 2 CPUs, vm (" in found.summary
    assert (found.summary.endswith(" has 1 H100 and 32 CPUs"), found.place.line) == (True, 3)
    written = "  ranks_per_node: 4\n  resources_per_rank: {memory: 100MB, CPU: 1}\n"
    found = checks(planned(4, backend=written))["never_fits"]
    assert ("memory" in found.summary, found.place.line) == (False, 9)


def test_resources_that_are_not_free_together(planned: Planned) -> None:
    words = checks(planned(2))["not_now"].summary
    assert words.startswith("needs 1 node with 2 H100 and 2 CPUs, and has to wait for room; ")
    assert " has 5 H100 and 1 CPU, vm (" in words
    assert " has 1 H100 and 2 CPUs" in words


@pytest.mark.parametrize("kind", ["H100", "GPU", "CPU"])
def test_a_cluster_without_nodes(cluster: Answers, planned: Planned, kind: str) -> None:
    cluster.by_path[NODES]["data"]["result"]["result"] = []
    found = checks(planned(1, kind=kind))["never_fits"]
    assert found.summary.endswith("; the cluster has no nodes")
    assert found.place is not None


@pytest.mark.parametrize(
    ("fields", "code", "summary", "line"),
    [
        ({"gpus": 1, "kind": "A10"}, "never_fits", "the cluster has 12 H100 (vm (", 2),
        ({"gpus": 4, "backend": "  resources_per_rank: {CPU: 2}\n  ranks_per_node: 4\n"},
         "never_fits", "needs 1 node with 8 CPUs; vm (", 8),
        ({"backend": "  resources_per_rank: {memory: 1TB}\n"},
         "never_fits", "needs 1 node with 1.0 TB memory; vm (", 8),
        ({"backend": "  resources_per_rank: {ssd_fats: 1}\n"},
         "unknown_resource", "no node of the cluster has the resource `ssd_fats`", 8),
        ({"backend": "  labels: {market: spto}\n"},
         "unknown_label", "no node of the cluster has the label `market: spto`", 8),
        ({"backend": "  labels: {markt: spot}\n"},
         "unknown_label", "no node of the cluster has the label `markt: spot`", 8),
        ({"gpus": 4, "backend": "  ranks_per_node: 3\n"},
         "bad_ranks_per_node", "`ranks_per_node: 3` does not divide `gpus: 4`", 8),
        ({"gpus": 2, "backend": "  ranks_per_node: 4\n", "more": "ray: true\n"},
         "bad_ranks_per_node", "`ranks_per_node: 4` does not divide `gpus: 2`", 8),
        ({"more": "max_parallel: 2\n"}, "unsupported_field", "`max_parallel`", 9),
        ({"more": "code: {link: [data]}\n"}, "unsupported_field", "`code.link`", 9),
        ({"more": "on_active: queue\n"}, "cannot_queue", "no attempt can wait there", 9),
        ({"backend": "  storage: /nowhere/at/all\n"}, "bad_storage", "is not there", 8),
        ({"backend": "  storage: /dev/null\n"}, "bad_storage", "is not a folder", 8),
        ({"backend": "  storage: /bin/sh\n"}, "bad_storage", "/bin/sh` is not a folder", 8),
    ],
)  # fmt: skip
def test_what_is_refused_has_a_place_and_a_way_out(
    planned: Planned, fields: dict[str, Any], code: str, summary: str, line: int
) -> None:
    found = checks(planned(**fields))[code]
    assert found.severity == "error"
    assert summary in found.summary
    assert found.place.line == line
    assert found.hint


def test_a_storage_that_cannot_be_written(planned: Planned, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o500)
    if os.geteuid() != 0:
        found = checks(planned(backend=f"  storage: {folder}\n"))["bad_storage"]
    else:
        with bound(folder):
            mount("-o", "remount,bind,ro", str(folder))
            found = checks(planned(backend=f"  storage: {folder}\n"))["bad_storage"]
    assert f"`storage: {folder}` is not writable on this machine" in found.summary
    assert found.place.line == 8


def test_near_names_are_offered(planned: Planned) -> None:
    found = checks(planned(backend="  resources_per_rank: {ssd_fats: 1}\n"))
    assert found["unknown_resource"].hint == "did you mean `ssd_fast`?"
    found = checks(planned(backend="  labels: {market: spto}\n"))
    assert found["unknown_label"].hint == "did you mean `spot`?"


def test_what_does_not_fit_now_says_what_is_free_and_who_runs(
    project: Path, cluster: Answers, planned: Planned
) -> None:
    store = SqliteStore(project / ".sgpu/default/state.db")
    with closing(store), store.lock("apply", lineage="ours") as writer:
        writer.plan_applied("an-earlier-one")
    metadata = {"sgpu.lineage": "ours", "sgpu.address": "run.other", "sgpu.attempt": "3"}
    cluster.by_path["/api/jobs/"] = [
        {"submission_id": "a", "status": "RUNNING", "metadata": metadata},
        {
            "submission_id": "d",
            "status": "RUNNING",
            "metadata": {**metadata, "sgpu.lineage": "of-another-project", "sgpu.attempt": "9"},
        },
        {
            "submission_id": "b",
            "status": "SUCCEEDED",
            "metadata": {**metadata, "sgpu.attempt": "2"},
        },
        {"submission_id": "c", "status": "RUNNING", "metadata": None},
        {"submission_id": None, "status": "RUNNING", "metadata": None},  # a driver of others
    ]
    found = checks(planned(6, backend=HALF))
    assert found["not_now"].severity == "warning"
    words = found["not_now"].summary
    assert "needs 1 node with 6 H100, and has to wait for room; free now: vm (" in words
    assert "has 5, " in words
    assert words.endswith("these attempts run there: `run.other#3`")
    assert "ray_placement" in found


def test_no_shared_folder_is_needed(planned: Planned) -> None:
    plan = planned(1, backend="  storage: null\n")
    assert set(checks(plan)) == {"ray_placement", "tracking_unreachable"}
    assert plan.applyable


PIPELINE = """\
project: {name: p}
runs:
  train: {type: H100, gpus: 1, command: [python, train.py], backend: {kind: ray, address: URL}}
  evaluate:
    type: H100
    gpus: 1
    after: [train]
    command: [python, train.py, "${run.train.output}"]
    backend: {kind: ray, address: URL}
"""


def test_runs_in_order_need_the_same_storage_or_both_none(project: Path, cluster: Answers) -> None:
    url = cluster.url

    def found(text: str) -> dict[str, Diagnostic]:
        (project / "sgpu.yml").write_text(text.replace("URL", url))
        with Session.open(Location(project=project)) as session:
            plan = session.plan().plan
        return {one.code: one for one in plan.checks if one.severity == "error"}

    shared = f"URL, storage: {project}"
    assert found(PIPELINE) == found(PIPELINE.replace("URL", shared)) == {}
    head, _, tail = PIPELINE.rpartition("URL")
    elsewhere = found(f"{head}{shared}{tail}")["after_elsewhere"]
    assert elsewhere.place is not None
    assert elsewhere.place.line == 7
    assert f"`{url}` with `{project}` and comes after `train`, which runs on `ray`, `{url}`" in (
        elsewhere.summary
    )


def test_what_fits_is_silent(planned: Planned) -> None:
    assert set(checks(planned(1))) == {"ray_placement", "tracking_unreachable"}


def test_several_runs_count_the_room_together(planned: Planned) -> None:
    plan = planned(2, more="matrix: {n: [1, 2, 3, 4, 5]}\nargs: {}\n", backend=HALF)
    (found,) = (check for check in plan.checks if check.code == "ray_placement")
    assert found.summary.endswith("; 1 of 5 runs fit at once")  # the head has one CPU left


SHAPES = """\
project: {name: p}
runs:
  big: {type: H100, gpus: 8, command: [x], backend: BACKEND}
  small: {type: H100, gpus: 6, command: [x], backend: BACKEND}
  middle: {type: H100, gpus: 7, command: [x], backend: BACKEND}
"""


def test_runs_of_several_shapes_count_the_room_together(project: Path, cluster: Answers) -> None:
    cluster.by_path["/nodes"]["data"]["nodeLogicalResources"] = {}

    def found(text: str, *, memory: int = 10**10) -> list[tuple[str, str | None, str]]:
        for machine in cluster.by_path["/nodes"]["data"]["summary"]:
            machine["mem"][1] = memory
        backend = f"{{kind: ray, address: '{cluster.url}', resources_per_rank: {{CPU: 0.1}}}}"
        (project / "sgpu.yml").write_text(text.replace("BACKEND", backend))
        with Session.open(Location(project=project)) as session:
            made = session.plan().plan.checks
        return [(one.code, one.address, one.summary) for one in made]

    shared = f"1 of 3 runs on `{cluster.url}` fit at once"
    assert ("ray_placement", None, shared) in found(SHAPES)
    both = found(SHAPES.replace("7", "4"))  # 4 on the node that has no more
    assert ("ray_placement", None, shared.replace("1 of 3", "2 of 3")) in both
    assert "head_memory" not in [code for code, _, _ in both]
    few = found(SHAPES, memory=500_000_000)
    assert [address for code, address, _ in few if code == "head_memory"] == [None]


def test_a_cluster_that_grows_is_warned_of(cluster: Answers, planned: Planned) -> None:
    backend = "  ranks_per_node: 8\n  autoscaling: true\n"
    found = checks(planned(16, backend=backend))
    assert found["needs_new_nodes"].severity == "warning"
    assert placement(planned(16, backend=backend)).scales
    machine = cluster.by_path["/nodes"]["data"]["summary"][0]
    machine["raylet"]["nodeTypeName"] = "gpu-group"
    found = checks(planned(8, kind="A100", backend="  ranks_per_node: 8\n"))
    assert found["needs_new_nodes"].severity == "warning"
    found = checks(planned(8, kind="A100"))
    assert found["ranks_per_node_missing"].severity == "error"
    assert "`ranks_per_node`" in found["ranks_per_node_missing"].hint


@pytest.mark.parametrize(
    ("kind", "labels", "resource", "words"),
    [
        ("L4", {}, "accelerator_type:L4", "nodes with the resource `accelerator_type:L4`"),
        ("A10", {"ray.io/accelerator-type": "in(A10,A10G)"}, None,
         "the label `ray.io/accelerator-type: A10` or `ray.io/accelerator-type: A10G`"),
        ("MI300X",
         {"ray.io/accelerator-type": "in(AMD-Instinct-MI300X-HF,AMD-Instinct-MI300X-OAM)"}, None,
         "`ray.io/accelerator-type: AMD-Instinct-MI300X-OAM`"),
        ("RTX_4090", {}, "accelerator_type:GeForce-RTX-4090", "GeForce-RTX-4090`"),
        ("A100", {}, "accelerator_type:A100", "nodes with the resource `accelerator_type:A100`"),
        ("A100_80GB", {}, "accelerator_type:A100-80G", "which Ray gives to no node by itself"),
    ],
)  # fmt: skip
def test_new_nodes_are_asked_for_by_the_names_that_ray_gives_them(
    planned: Planned, kind: str, labels: dict[str, str], resource: str | None, words: str
) -> None:
    growing = "  ranks_per_node: 2\n  autoscaling: true\n"
    plan = planned(4, kind=kind, backend=growing)
    found, wanted = checks(plan)["needs_new_nodes"], placement(plan)
    assert (wanted.labels, set(wanted.bundle) - {"CPU", "GPU"}) == (
        labels,
        {resource} - {None},
    )
    assert words in found.summary
    by_hand = resource is not None and resource.endswith("-80G")
    assert ("`type: A100`" in found.hint, '"accelerator_type:A100-80G": 1' in found.hint) == (
        by_hand,
        by_hand,
    )


def test_an_old_ray_has_no_name_for_cards_of_workstations(
    cluster: Answers, planned: Planned
) -> None:
    cluster.by_path |= recorded("2.49.1")
    growing = "  ranks_per_node: 2\n  autoscaling: true\n"
    found = checks(planned(4, kind="RTX_4090", backend=growing))["needs_new_nodes"]
    assert "which Ray gives to no node by itself" in found.summary
    assert "or write `type: GPU`" in found.hint


def test_nodes_that_are_there_are_taken_on_a_cluster_that_grows(
    cluster: Answers, planned: Planned
) -> None:
    """The label of two sizes is one: the nodes of the right size are named."""
    rows = cluster.by_path[NODES]["data"]["result"]["result"]
    for row in rows:
        row["labels"]["ray.io/accelerator-type"] = "A100"
    machines = cluster.by_path["/nodes"]["data"]["summary"]
    for machine, mib in zip(machines, (81920, 40960), strict=True):
        machine["gpus"] = [{"name": "NVIDIA A100-SXM4", "memoryTotal": mib}]
    growing = "  ranks_per_node: 1\n  autoscaling: true\n"
    found = placement(planned(1, kind="A100_80GB", backend=growing))
    head = machines[0]["raylet"]["nodeId"]
    assert (found.labels, found.scales) == ({"ray.io/node-id": head}, True)
    more = planned(2, kind="A100_80GB", backend=growing)
    assert "accelerator_type:A100-80G" in placement(more).bundle
    assert "accelerator_type:A100-80G" in checks(more)["needs_new_nodes"].summary


def test_new_nodes_of_any_type_may_differ(cluster: Answers, planned: Planned) -> None:
    cluster.by_path[NODES]["data"]["result"]["result"] = []
    growing = "  ranks_per_node: 1\n  autoscaling: true\n"
    found = checks(planned(2, kind="GPU", backend=growing))["needs_new_nodes"]
    assert "GPUs of several types" in found.summary
    assert "several types" not in checks(planned(1, kind="GPU", backend=growing))[
        "needs_new_nodes"
    ].summary  # fmt: skip


@pytest.mark.parametrize(
    ("code", "backend"),
    [
        ("unknown_resource", "  resources_per_rank: {fpga: 1}\n"),
        ("unknown_label", "  labels: {market: gone}\n"),
        ("unknown_label", "  labels: {zone: a}\n  resources_per_rank: {fpga: 0.5, memory: 9TB}\n"),
    ],
)
@pytest.mark.parametrize("kind", ["H100", "GPU", "CPU"])
def test_an_unknown_name_on_a_cluster_that_grows_leaves_no_launch_without_a_shape(
    planned: Planned, code: str, backend: str, kind: str
) -> None:
    """A new node may have the name, and nothing tells how many ranks it will hold."""
    growing = f"  autoscaling: true\n{backend}"
    found = checks(planned(4, kind=kind, backend=growing))
    assert found[code].severity == "warning"
    assert found["ranks_per_node_missing"].severity == "error"
    assert found["ranks_per_node_missing"].place is not None
    shaped = planned(4, kind=kind, backend=f"{growing}  ranks_per_node: 2\n")
    assert checks(shaped)[code].severity == "warning"
    assert checks(shaped)["needs_new_nodes"].severity == "warning"
    assert "ranks_per_node_missing" not in checks(shaped)
    assert placement(shaped).ranks_per_node == 2


@pytest.mark.parametrize(("share", "cpus"), [(0.1, 1), (0.5, 1), (0.75, 1), (1.5, 3)])
def test_a_cluster_inside_a_run_counts_whole_cpus(
    planned: Planned, share: float, cpus: int
) -> None:
    backend = f"  resources_per_rank: {{CPU: {share}}}\n  ranks_per_node: 2\n"
    plan = planned(2, kind="CPU", backend=backend, more="ray: true\n")
    words = checks(plan)["ray_cluster"].summary
    assert words == f"Ray cluster: 1 node, {cpus} CPU{'' if cpus == 1 else 's'}"


def test_a_head_without_cpus_takes_no_ranks(cluster: Answers, planned: Planned) -> None:
    for row in cluster.by_path[NODES]["data"]["result"]["result"]:
        if row["is_head_node"]:
            del row["resources_total"]["CPU"]
    assert "never_fits" in checks(planned(2, kind="CPU", backend="  ranks_per_node: 1\n"))
    assert "ray_placement" in checks(planned(1, kind="CPU"))


@pytest.mark.parametrize(
    ("name", "version"), [("rayVersion", "2.48.0"), ("pythonVersion", "3.9.2")]
)
def test_a_cluster_that_is_too_old(
    cluster: Answers, planned: Planned, name: str, version: str
) -> None:
    cluster.by_path["/api/v0/cluster_metadata"]["data"][name] = version
    assert version in checks(planned())["ray_too_old"].summary


def test_a_cluster_without_the_jobs_api(cluster: Answers, planned: Planned) -> None:
    del cluster.by_path["/api/version"]
    found = checks(planned())["ray_without_jobs"]
    assert (found.severity, found.place.line) == ("error", 7)
    assert "`pip install 'ray[default]'`" in found.hint


def test_versions_of_builds_are_read(cluster: Answers, planned: Planned) -> None:
    """`3.11.9+` is what a Python says that was built between two releases."""
    metadata = cluster.by_path["/api/v0/cluster_metadata"]["data"]
    metadata |= {"rayVersion": "2.49.1-anyscale", "pythonVersion": "3.11.9+"}
    assert set(checks(planned())) == {"ray_placement", "tracking_unreachable"}
    metadata["rayVersion"] = "2.48.0-anyscale"
    assert "Ray 2.48.0-anyscale" in checks(planned())["ray_too_old"].summary


@pytest.mark.parametrize(
    ("path", "place", "wrong", "named"),
    [
        ("/api/v0/cluster_metadata", ("data", "pythonVersion"), "unknown", "pythonVersion"),
        ("/api/v0/cluster_metadata", ("data", "rayVersion"), "nightly", "rayVersion"),
        (NODES, (*ROWS, 0, "resources_total", "CPU"), float("inf"), "`CPU`"),
        (NODES, (*ROWS, 0, "labels", "ray.io/node-id"), ["a"], "`ray.io/node-id`"),
        (NODES, (*ROWS, 0, "is_head_node"), "yes", "is_head_node"),
        ("/nodes", (*MACHINES, 0, "gpus"), [5], "`gpus`"),
        ("/nodes", (*MACHINES, 0, "gpus"), [{"name": ["H100"]}], "`name`"),
        ("/nodes", (*MACHINES, 0, "gpus"), [{"memoryTotal": [1]}], "`memoryTotal`"),
        ("/nodes", (*MACHINES, 0, "mem"), [1, "much"], "`mem`"),
        ("/nodes", (*MACHINES, 0, "hostname"), 5, "`hostname`"),
        ("/nodes", ("data", "nodeLogicalResources"), "1.2.3/4 CPU", "nodeLogicalResources"),
        ("/nodes", ("data", "nodeLogicalResources"), "much CPU", "nodeLogicalResources"),
    ],
)
def test_an_odd_field_is_named(
    cluster: Answers, planned: Planned, path: str, place: tuple[Any, ...], wrong: Any, named: str
) -> None:
    answer = cluster.by_path[path]
    for key in place[:-1]:
        answer = answer[key]
    if place[-1] == "nodeLogicalResources":
        wrong = dict.fromkeys(answer["nodeLogicalResources"], wrong)
    answer[place[-1]] = wrong
    found = checks(planned())["not_ray_dashboard"]
    assert f"`{path}` gives " in found.summary
    assert named in found.summary.partition(" gives ")[2]


@pytest.mark.parametrize(
    ("sent", "block", "found"),
    [
        ("3.12.1", {}, True),
        ("3.11.2", {}, False),
        (None, {}, False),
        ("3.12.1", {"python": "/opt/python3.12"}, False),
    ],
)
def test_another_python_than_the_environment_is_for(
    sent: str | None, block: dict[str, str], found: bool
) -> None:
    fields = {"name": "a", "gpus": 1, "type": "CPU", "command": ["x"]}
    config = RunConfig.model_validate({**fields, "backend": {"kind": "ray", **block}})
    state = ClusterState(ray="2.60.0", python="3.11.7", nodes=(), scales=False)
    findings = list(cluster_findings(config, {}, state, python=sent, called=False))
    assert [item.code for item in findings] == ["python_differs"] * found
    if found:
        assert "3.12.1, and the cluster runs Python 3.11.7" in findings[0].summary
        assert "`python` in `backend`" in findings[0].hint


def test_a_head_without_memory(cluster: Answers, planned: Planned) -> None:
    for machine in cluster.by_path["/nodes"]["data"]["summary"]:
        machine["mem"][1] = 100_000_000
    found = checks(planned())["head_memory"]
    assert found.severity == "warning"
    assert "100.0 MB of memory free, which is enough for no driver" in found.summary


def test_each_run_of_a_plan_has_a_driver_on_the_head(cluster: Answers, planned: Planned) -> None:
    for machine in cluster.by_path["/nodes"]["data"]["summary"]:
        machine["mem"][1] = 700_000_000
    few = planned(more="matrix: {n: [1, 2, 3]}\nargs: {}\n")
    assert "head_memory" not in checks(few)
    many = checks(planned(more="matrix: {n: [1, 2, 3, 4]}\nargs: {}\n"))["head_memory"]
    assert "enough for 3 drivers" in many.summary
    assert many.place.line == 5


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        (None, "`.sgpu/mlflow.db` on the disk of this machine"),
        ("sqlite:////data/mlflow.db", "`sqlite:////data/mlflow.db` is on the disk of this machine"),
        ("mlruns", "`mlruns` is on the disk of this machine"),
        ("http://localhost:5000", "`http://localhost:5000` is an address of this machine"),
        ("http://[::1]:5000", "`http://[::1]:5000` is an address of this machine"),
        ("https://mlflow.example.com", None),
        ("databricks", None),
    ],
)
def test_a_store_that_nodes_cannot_reach_is_said(
    planned: Planned, uri: str | None, words: str | None
) -> None:
    block = "" if uri is None else f"mlflow: {{tracking_uri: '{uri}'}}\n"
    found = checks(planned(more=block)).get("tracking_unreachable")
    if words is None:
        assert found is None
        return
    assert found is not None
    assert (found.severity, words in found.summary) == ("info", True), found.summary
    if uri is not None:
        assert found.place.line == 9


def test_a_report_that_no_mlflow_run_takes_is_said(planned: Planned) -> None:
    found = checks(planned(more="report: true\n"))["report_unkept"]
    assert (found.severity, found.place.line) == ("warning", 9)
    assert found.summary.endswith("adds the page to no MLflow run: nodes cannot reach its store")


def test_without_tracking_the_store_does_not_matter(planned: Planned) -> None:
    assert "tracking_unreachable" not in checks(planned(more="mlflow: {enabled: false}\n"))


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://ann:correct-horse@db/mlflow", "postgresql://ann:***@db/mlflow"),
        (
            "postgresql://ann@db/mlflow?password=correct-horse",
            "postgresql://ann@db/mlflow?password=***",
        ),
    ],
)
def test_a_password_in_the_exported_uri_is_not_shown(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, uri: str, shown: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    found = checks(planned())["tracking_unreachable"]
    assert f"write the password in `{shown}" in found.summary
    assert "correct-horse" not in found.summary


def test_a_cluster_that_cannot_be_asked_is_a_warning_with_the_reason(planned: Planned) -> None:
    plan = planned(url="http://127.0.0.1:1")
    found = checks(plan)["host_unreachable"]
    assert found.severity == "warning"
    assert "could not be asked whether it takes the run" in found.summary
    assert found.place.line == 7
    assert plan.changes[0].launch is None or plan.changes[0].launch.inputs.placement is None
    assert not plan.complete
    assert planned().complete


@pytest.mark.parametrize("address", ["head:6379", "ray://head:10001"])
def test_a_variable_that_names_no_dashboard_is_said_to_be_passed_over(
    project: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    block = "backend: ray\nmlflow: {enabled: false}\n"
    (project / "run.yaml").write_text(RUN.format(type="CPU", gpus=1) + block)
    with Session.open(Location(project=project)) as session:
        found = checks(session.plan().plan)["host_unreachable"]
    assert "the default (`RAY_ADDRESS` names no dashboard, and is not used)" in found.hint


def test_a_web_server_without_ray_is_no_dashboard(planned: Planned) -> None:
    with answering({}) as other:
        found = checks(planned(url=other.url))["not_ray_dashboard"]
    assert "`/api/v0/cluster_metadata` gives 404" in found.summary


def test_a_token_that_is_missing_says_where_it_was_looked_for(planned: Planned) -> None:
    with answering(recorded("2.60.0"), token="t-1") as secured:
        found = checks(planned(url=secured.url))["unauthenticated"]
    assert "`RAY_AUTH_TOKEN`, `RAY_AUTH_TOKEN_PATH` and `~/.ray/auth_token`" in found.hint


INSECURE = "  insecure: true\n"


@pytest.mark.parametrize(
    ("token", "headers", "backend", "found"),
    [
        (None, "", "", {"ray_insecure": "error"}),
        (None, "", INSECURE, {"ray_open": "warning"}),
        ("t-1", "", "", {"ray_unencrypted": "warning"}),
        ("t-1", "", INSECURE, {}),
        (None, '{"Authorization": "Basic YTpi"}', "", {"ray_unencrypted": "warning"}),
        (None, '{"x-api-key": "a"}', "", {"ray_unencrypted": "warning"}),
        (None, '{"CF-Access-Client-Secret": "a"}', "", {"ray_unencrypted": "warning"}),
        (None, '{"X-Team": "a"}', "", {"ray_insecure": "error"}),
        (None, '{"X-Monkey": "a", "Cookie": ""}', "", {"ray_insecure": "error"}),
        (None, '{"X-Team": "a"}', INSECURE, {"ray_open": "warning"}),
    ],
)
def test_what_crosses_the_network_openly(
    planned: Planned,
    monkeypatch: pytest.MonkeyPatch,
    token: str | None,
    headers: str,
    backend: str,
    found: dict[str, str],
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t-1")
    monkeypatch.setenv("RAY_JOB_HEADERS", headers)
    with answering(recorded("2.60.0"), token=token) as server:
        # An address of this machine that is not one of loopback.
        plan = planned(url=server.url.replace("127.0.0.1", "0.0.0.0"), backend=backend)
        here = planned(url=server.url, backend=backend)
    said = {name: check.severity for name, check in checks(plan).items()}
    assert {name: said[name] for name in said if name.startswith("ray_")} == {
        **found,
        "ray_placement": "info",
    }
    assert set(checks(here)) == {"ray_placement", "tracking_unreachable"}


def test_something_else_that_answers_is_no_dashboard(planned: Planned) -> None:
    with answering({"/api/v0/cluster_metadata": {"hello": "world"}}) as other:
        found = checks(planned(url=other.url))["not_ray_dashboard"]
    assert "does not answer as Ray's dashboard does" in found.summary


def test_a_token_that_others_can_read_is_a_warning(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("t-1")
    file.chmod(0o644)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    assert "ray_token_readable" not in checks(planned())  # it is not sent
    with answering(recorded("2.60.0"), token="t-1") as secured:
        found = checks(planned(url=secured.url))["ray_token_readable"]
    assert found.hint == f"run `chmod 600 {file}`"


def test_a_malformed_tracking_uri_is_an_error(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://[server")

    assert checks(planned())["bad_tracking_uri"].severity == "error"


def test_the_gpus_of_a_cluster_are_listed_with_what_is_free(
    project: Path, cluster: Answers, planned: Planned
) -> None:
    planned()
    with Session.open(Location(project=project)) as session:
        (offer,), silent = session.doctor.gpus()
    assert (offer.type, offer.gpus, offer.free, offer.total) == ("H100", "1 to 12", 6, 12)
    assert offer.where == f"the Ray cluster at {cluster.url}"
    assert silent == ()


def test_a_plan_names_the_cluster_in_its_first_line(cluster: Answers, planned: Planned) -> None:
    plan = planned()
    (platform,) = plan.platforms
    assert (platform.backend, platform.host, platform.user) == ("ray", cluster.url, None)
    assert render(plan, now=plan.created_at).splitlines()[0] == f"On ray: {cluster.url}"


DRIVER = "ray: {cluster: existing%s}\n"


def test_a_plan_says_where_a_driver_runs_and_what_its_cluster_has(planned: Planned) -> None:
    plan = planned(0, kind="CPU", more=DRIVER % "")
    assert checks(plan)["ray_driver"].summary.startswith(
        f"the driver runs on the head node, on `{placement(plan).address}`, which has 2 nodes, "
        "7 CPUs and 12 H100 ("
    )
    assert placement(plan).bundle == {"node:__internal_head__": 0.001}
    assert plan.estimate.gpu_hours_worst is None
    grows = planned(0, kind="CPU", backend="  autoscaling: true\n", more=DRIVER % "")
    assert checks(grows)["ray_driver"].summary.endswith("now, and starts more nodes for its tasks")
    asks = planned(0, kind="H100", more=DRIVER % ", num_cpus: 1, num_gpus: 1")
    assert placement(asks).bundle["GPU"] == 1
    assert placement(asks).labels == {"ray.io/accelerator-type": "H100"}


@pytest.mark.parametrize(
    ("backend", "fields"),
    [
        ("  ranks_per_node: 4\n", "`ranks_per_node`"),
        ("  resources_per_rank: {CPU: 2}\n", "`resources_per_rank`"),
        ("  labels: {market: spot}\n", "`labels`"),
    ],
)
def test_options_of_rank_groups_do_not_go_with_a_driver(
    planned: Planned, backend: str, fields: str
) -> None:
    found = checks(planned(0, kind="CPU", backend=backend, more=DRIVER % ""))
    assert found["backend_of_driver"].summary.startswith(fields)
    assert found["backend_of_driver"].place is not None


def test_a_driver_that_fits_nowhere_names_its_field(planned: Planned) -> None:
    found = checks(planned(0, kind="CPU", more=DRIVER % ", resources: {disk: 3}"))
    assert found["unknown_resource"].place is not None
    found = checks(planned(0, kind="CPU", more=DRIVER % ", num_cpus: 5"))
    assert found["never_fits"].summary.startswith("needs 1 node with 5 CPUs")
