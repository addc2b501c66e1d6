"""How far a run is, in words: `step 1,200 of 3,000, 40 %, 38 m left, loss 1.83`."""

from collections.abc import Iterator

from sgpu_decl.diagnostics.amounts import duration
from sgpu_decl.model.attempt_details import RunProgress
from sgpu_decl.views.terminal import count, escape

_LOSS = ("loss", "train_loss", "train/loss", "training loss", "train loss")


def progress_words(progress: RunProgress, *, ended: bool = False) -> str:
    """Return it on one line; what is not known is left out.

    Args:
        ended: the run has, so nothing is left.
    """
    return ", ".join(_parts(progress, ended=ended))


def _parts(progress: RunProgress, *, ended: bool) -> Iterator[str]:
    percent = "" if progress.percent is None else f"{progress.percent:.0f} %"
    if progress.unit == "percent":
        yield percent
    elif progress.total is None:
        yield f"{progress.unit} {progress.step:,}"
    else:
        yield f"{progress.unit} {progress.step:,} of {progress.total:,}"
        yield percent
    if not ended and progress.seconds_left is not None:
        yield f"{duration(progress.seconds_left)} left"
    elif not ended and progress.per_second and progress.total is None:
        yield _speed(progress)
    named = next((name for name in _LOSS if progress.metrics.get(name) is not None), None)
    if named is not None:
        yield f"{escape(named)} {progress.metrics[named]:.4g}"


def _speed(progress: RunProgress) -> str:
    rate = progress.per_second or 0.0
    if rate >= 1:
        return f"{rate:.3g} {progress.unit}s a second"
    return f"{count(round(60 * rate), progress.unit)} a minute"
