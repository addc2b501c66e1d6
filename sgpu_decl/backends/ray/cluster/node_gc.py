"""gc on the nodes of a cluster: a task on each deletes what the head does not have any more."""

from __future__ import annotations

import os

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.backends.ray.cluster import node_folder

__all__ = ["free_nodes"]

_PATIENCE = 30.0  # seconds until all nodes must have answered

# Nodes have no copy of this package.
ray.cloudpickle.register_pickle_by_value(node_folder)


def free_nodes(objects: str) -> int:
    """Delete content on all nodes that are alive, but for what the folder `objects` of the head
    has; return the bytes. A node that does not answer keeps its content until a later gc."""
    kept = frozenset(
        os.path.relpath(os.path.join(place, name), objects)
        for place, _, names in os.walk(objects)
        for name in names
    )
    task = ray.remote(node_folder.delete_content)
    answers = [
        task.options(
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote(kept)
        for node in ray.nodes()
        if node["Alive"]
    ]
    ready, late = ray.wait(answers, num_returns=len(answers), timeout=_PATIENCE)
    if late:
        attempt_files.say(f"{len(late)} nodes did not answer, and keep their content")
    size = 0
    for answer in ready:
        try:
            size += ray.get(answer)
        except RayError as error:
            attempt_files.say(f"a node keeps its content: {' '.join(str(error).split())[:500]}")
    return size
