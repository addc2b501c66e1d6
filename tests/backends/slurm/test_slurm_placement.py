from typing import Any

import pytest

from sgpu_decl.backends.slurm.cluster_state import SlurmNode
from sgpu_decl.backends.slurm.options import SlurmOptions
from sgpu_decl.backends.slurm.slurm_placement import SlurmPlacement, fit_of
from sgpu_decl.config.run import run_config
from sgpu_decl.model.jsonable import Spec


def node(name: str, used: int = 0, cpus: int = 64, *features: str, **gpus: int) -> SlurmNode:
    named = {key.replace("any", ""): count for key, count in gpus.items()}
    return SlurmNode(
        name=name, cpus=cpus, cpus_used=0, gpus=named, used=dict.fromkeys(named, used),
        features=frozenset(features), partitions=frozenset({"main"}), works=True,
    )  # fmt: skip


def placed(nodes: list[SlurmNode], **fields: Any) -> tuple[Any, SlurmPlacement]:
    block = {"kind": "slurm", **fields.pop("backend", {})}
    config = run_config(
        "train", Spec.of({"entrypoint": "t.py:main", "type": "H100", **fields, "backend": block})
    )
    assert isinstance(config.backend, SlurmOptions)
    fit = fit_of(config, config.backend, nodes)
    return fit, fit.placement(config.backend)


def test_ranks_are_spread_over_as_few_nodes_as_have_the_gpus() -> None:
    nodes = [node("a", h100=8), node("b", h100=8), node("c", h100=4)]

    fit, placement = placed(nodes, gpus=16)

    assert (fit.never, fit.later) == (False, False)
    assert (placement.nodes, placement.ranks, placement.gres) == (2, 8, "gpu:h100:8")
    assert placement.cpus == 64  # all of the node
    assert SlurmPlacement.from_id(placement.id) == placement


def test_each_rank_has_its_share_of_the_processors() -> None:
    _, placement = placed([node("a", h100=8)], gpus=2)

    assert placement.cpus == 16


def test_what_others_hold_does_not_change_the_shape() -> None:
    fit, placement = placed([node("a", 8, h100=8), node("b", h100=4)], gpus=8)

    assert (placement.nodes, placement.ranks) == (1, 8)
    assert (fit.never, fit.later) == (False, True)


def test_of_names_for_one_type_the_one_with_room_is_asked_for() -> None:
    _, placement = placed([node("a", 2, h100=2), node("b", h100_80gb_hbm3=2)], gpus=2)

    assert placement.gres == "gpu:h100_80gb_hbm3:2"


def test_gpus_without_a_type_are_found_by_a_feature_of_their_nodes() -> None:
    nodes = [node("a", 0, 64, "v100", any=4), node("b", 0, 64, "h100", any=4)]

    _, placement = placed(nodes, gpus=4, backend={"constraint": "ib"})

    assert (placement.gres, placement.constraint) == ("gpu:4", "ib&h100")


def test_an_odd_name_is_said_by_the_user() -> None:
    nodes = [node("a", hopper=4)]

    assert placed(nodes, gpus=4)[0].never
    _, placement = placed(nodes, gpus=4, backend={"gpu_names": {"H100": "hopper"}})
    assert placement.gres == "gpu:hopper:4"


def test_any_type_and_none_at_all() -> None:
    nodes = [node("a", h100=2, cpus=8), node("b", a100=4, cpus=8)]

    assert placed(nodes, gpus=4, type="GPU")[1].gres == "gpu:4"
    _, placement = placed(nodes, gpus=4, type="CPU")
    assert (placement.nodes, placement.gres, placement.cpus) == (1, None, 4)


def test_a_run_that_never_fits_is_told_by_the_shape_that_comes_nearest() -> None:
    fit, _ = placed([node("a", h100=4), node("b", h100=4)], gpus=12)

    assert (fit.never, fit.groups, fit.ranks) == (True, 3, 4)
    assert placed([node("a", h100=4)], gpus=6, backend={"gpus_per_node": 6})[0].never


@pytest.mark.parametrize("text", ["", "[]", '{"nodes": 1}'])
def test_what_is_no_placement_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"placement|Expecting"):
        SlurmPlacement.from_id(text)


def test_processors_that_options_ask_for_are_not_asked_for_twice() -> None:
    _, placement = placed([node("a", h100=8)], gpus=8, backend={"options": ["--cpus-per-gpu=4"]})

    assert placement.cpus is None
