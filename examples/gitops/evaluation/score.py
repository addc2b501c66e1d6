"""Score a slope: a small stand-in for your evaluation."""


def main(slope: float) -> dict[str, float]:
    return {"error": abs(slope - 3)}
