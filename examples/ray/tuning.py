"""Ray Data prepares the points, and Ray Tune searches the learning rate on the run's cluster."""

import os

import numpy as np
import ray
from fit import fit_line
from ray import tune

Columns = dict[str, np.ndarray]


def measured(rows: Columns) -> Columns:
    """Noisy points on a line, as a sensor might give them."""
    noise = np.random.default_rng(int(rows["id"][0])).normal(0, 0.1, len(rows["id"]))
    return {"x": rows["id"], "y": 3 * rows["id"] / 64 + 1 + noise}


def scaled(rows: Columns) -> Columns:
    """The same points with x between 0 and 1, where gradient descent converges."""
    return {"x": rows["x"] / 64, "y": rows["y"]}


def trial(config: dict[str, float], points: list[dict[str, float]], steps: int) -> None:
    tune.report({"loss": fit_line(points, config["rate"], steps)})


def main(rates: list[float], steps: int) -> dict[str, float]:
    ray.init()  # finds the cluster of the run by RAY_ADDRESS
    points = ray.data.range(64).map_batches(measured).map_batches(scaled).take_all()
    print(f"{len(points)} points are prepared", flush=True)
    tuner = tune.Tuner(
        tune.with_parameters(trial, points=points, steps=steps),
        param_space={"rate": tune.grid_search(rates)},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(
            name="tune", storage_path=os.environ["SGPU_OUTPUT_DIR"], verbose=0
        ),
    )
    best = tuner.fit().get_best_result()
    print(f"best: rate {best.config['rate']:g}, loss {best.metrics['loss']:.4f}")
    return {"rate": best.config["rate"], "loss": best.metrics["loss"]}
