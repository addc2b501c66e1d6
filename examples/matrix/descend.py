"""Gradient descent on a bowl from a random start: small enough to run by the dozen."""

import random


def main(lr: float, seed: int, steps: int = 50) -> dict[str, float]:
    draw = random.Random(seed)
    x, y = draw.uniform(-2, 2), draw.uniform(-2, 2)
    for _ in range(steps):
        x, y = x - lr * 2 * x, y - lr * 20 * y
    value = x**2 + 10 * y**2
    print(f"lr={lr} seed={seed}: {value:.3e} after {steps} steps")
    return {"lr": lr, "seed": seed, "value": value}
