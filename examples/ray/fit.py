"""What each task does. Tasks import it from the run's copy of the code, on every node."""

import random


def fit(rate: float, steps: int) -> dict[str, float]:
    """Fit a line to 64 noisy points by gradient descent."""
    draw = random.Random(0)
    points = [(x / 64, 3 * x / 64 + 1 + draw.gauss(0, 0.1)) for x in range(64)]
    slope = offset = 0.0
    for _ in range(steps):
        errors = [(slope * x + offset - y, x) for x, y in points]
        slope -= rate * sum(error * x for error, x in errors) / len(points)
        offset -= rate * sum(error for error, _ in errors) / len(points)
    loss = sum((slope * x + offset - y) ** 2 for x, y in points) / len(points)
    return {"rate": rate, "loss": loss}
