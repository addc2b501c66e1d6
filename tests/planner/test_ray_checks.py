"""How a plan shows the Ray clusters that it starts."""

from typing import Any

import pytest

from sgpu_decl.model.ray_size import RaySize


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (
            RaySize(nodes=2, gpus=8, cpus=16, object_store_memory=8_000_000_000, version="2.60.0"),
            "Ray cluster: 2 nodes, 8 GPUs, 16 CPUs, object store 2 × 8.0 GB; Ray 2.60.0",  # noqa: RUF001
        ),
        (
            RaySize(nodes=1, gpus=0, cpus=1, object_store_memory=75 << 20),
            "Ray cluster: 1 node, 1 CPU, object store 78.6 MB",
        ),
        (RaySize(), "Ray cluster: its size is known on its nodes only"),
    ],
)
def test_the_size_and_the_version_as_far_as_they_are_known(
    world: Any, cluster: RaySize, words: str
) -> None:
    (check,) = world.want(ray=cluster).plan().checks
    assert (check.code, str(check.severity), check.summary) == ("ray_cluster", "info", words)


def test_equal_clusters_are_shown_once_with_their_number(world: Any) -> None:
    cluster = RaySize(nodes=1, gpus=1, version="2.60.0")
    made = world.want("a", ray=cluster).want("b", ray=cluster).want("c").plan()
    (check,) = made.checks
    assert str(check.address) == "run.a"
    assert check.summary == ("Ray cluster: 1 node, 1 GPU; Ray 2.60.0; one as large for 1 more run")


def test_a_matrix_says_how_many_cells_get_such_a_cluster(world: Any) -> None:
    cluster = RaySize(nodes=1, cpus=4)
    for name in "abcd":
        world.want(name, ray=cluster)
    (check,) = world.plan().checks
    assert check.summary == "Ray cluster: 1 node, 4 CPUs; one as large for each of 3 more runs"


def test_a_run_that_is_not_launched_shows_none(world: Any) -> None:
    from sgpu_decl.model.attempt import AttemptState

    assert world.had(AttemptState.SUCCEEDED).want(ray=RaySize(nodes=1)).plan().checks == ()
