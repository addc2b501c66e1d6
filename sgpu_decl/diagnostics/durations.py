"""Durations in words, for messages and views."""


def duration(seconds: float) -> str:
    """Return a duration in its two greatest units: `3 d 4 h`, `6 h`, `1 m 30 s`, `0.2 s`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s".replace(".0 s", " s")
    left = round(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, left = divmod(left, length)
        if amount or parts:
            parts.append(f"{amount} {unit}" if amount else "")
    return " ".join(part for part in parts[:2] if part)
