"""The driver of the run's Ray cluster: one task for each learning rate, the best of them wins."""

import ray
from fit import fit


def main(rates: list[float], steps: int) -> dict[str, float]:
    ray.init()  # finds the cluster of the run by RAY_ADDRESS
    task = ray.remote(fit)
    pending = [task.remote(rate, steps) for rate in rates]
    best = {"rate": 0.0, "loss": float("inf")}
    while pending:
        (done,), pending = ray.wait(pending)
        found = ray.get(done)
        print(f"rate {found['rate']:g}: loss {found['loss']:.4f}", flush=True)
        best = min(best, found, key=lambda item: item["loss"])
    print(f"best: rate {best['rate']:g}, of {len(rates)} tasks on {len(ray.nodes())} node(s)")
    return best
