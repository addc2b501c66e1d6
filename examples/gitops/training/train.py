"""Fit a line to points: a small stand-in for your training, without any package."""

import json
import os
from pathlib import Path


def main(data: str, steps: int, rate: float) -> dict[str, float]:
    """Return the slope and the loss. Each rank has points of its own; rank 0 writes the model."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    points = [(number / 10, 3 * number / 10) for number in range(1 + rank, 11, world)]
    slope = 0.0
    for _ in range(steps):
        slope += rate * sum((y - slope * x) * x for x, y in points)
    loss = sum((y - slope * x) ** 2 for x, y in points)
    if rank == 0:
        model = Path(os.environ["SGPU_OUTPUT_DIR"], "model.json")
        model.write_text(json.dumps({"slope": slope, "data": data}))
    return {"slope": slope, "loss": loss}
