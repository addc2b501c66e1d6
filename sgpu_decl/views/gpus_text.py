"""The GPUs that runs can ask for, as a table."""

from collections.abc import Sequence

from sgpu_decl.model.gpu_offer import GpuOffer
from sgpu_decl.views.terminal import columns, escape

_HEAD = ("TYPE", "FREE", "GPUS OF A RUN", "WHERE")


def gpus_table(offers: Sequence[GpuOffer]) -> str:
    """Return one line for each type at each place: how many are free, and what a run can have."""
    rows = [tuple(map(escape, (one.type, _free(one), one.gpus, _where(one)))) for one in offers]
    widths = [max(columns(row[at]) for row in (_HEAD, *rows)) for at in range(len(_HEAD))]
    return "\n".join(
        "  ".join(
            text + " " * (width - columns(text)) for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in (_HEAD, *rows)
    )


def _free(offer: GpuOffer) -> str:
    if offer.free is None:
        return "?"
    return f"{offer.free:,}" if offer.total is None else f"{offer.free:,} of {offer.total:,}"


def _where(offer: GpuOffer) -> str:
    return offer.where if offer.note is None else f"{offer.where} ({offer.note})"
