"""What each task and each trial does. They import it from the run's copy of the code, on every
node."""

import random
from collections.abc import Sequence


def fit(rate: float, steps: int) -> dict[str, float]:
    """Fit a line to 64 noisy points by gradient descent."""
    draw = random.Random(0)
    points = [{"x": x / 64, "y": 3 * x / 64 + 1 + draw.gauss(0, 0.1)} for x in range(64)]
    return {"rate": rate, "loss": fit_line(points, rate, steps)}


def fit_line(points: Sequence[dict[str, float]], rate: float, steps: int) -> float:
    """Fit a line to points by gradient descent; return the mean squared error that is left."""
    slope = offset = 0.0
    for _ in range(steps):
        errors = [(slope * point["x"] + offset - point["y"], point["x"]) for point in points]
        slope -= rate * sum(error * x for error, x in errors) / len(points)
        offset -= rate * sum(error for error, _ in errors) / len(points)
    return sum((slope * point["x"] + offset - point["y"]) ** 2 for point in points) / len(points)
