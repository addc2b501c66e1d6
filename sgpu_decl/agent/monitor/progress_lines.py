"""Progress that programs print: bars of tqdm, and lines such as `step 120/3000: loss 1.8`.

A bar of tqdm is ` 41%|####  | 1200/3000 [12:01<18:02, 1.66it/s, loss=1.8]`, written over and over
after a carriage return (https://github.com/tqdm/tqdm#parameters, `bar_format`). Lightning writes
such a bar for each epoch, `Epoch 3:  41%|...`, Hugging Face's Trainer one for all steps. Several
bars may go on at once: the one that began first is the outermost, and counts. The bar of an
evaluation lies inside it.
"""

from __future__ import annotations

import re

from sgpu_decl.agent.monitor.progress_estimate import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

_LONGEST = 2048  # characters of a line that are looked at
_MOST_BARS = 16
_SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

_NUMBER = r"[\d.]+[kMGT]?"
_BAR = re.compile(
    rf"(?P<name>[^|]*?)\s*\d{{1,3}}%\|[^|]*\|\s*(?P<done>{_NUMBER})/(?P<total>{_NUMBER})"
    r"\s*\[(?P<elapsed>[\d:]+)<[^,\]]*(?:,\s*(?P<rate>[^,\]]*))?(?:,\s*(?P<values>[^\]]*))?\]"
)
_EPOCH_NAME = re.compile(r"epoch\D{0,3}(\d+)", re.IGNORECASE)
_ASIDE = re.compile(
    r"eval|valid|test|sanity|predict|load|download|sav|map\b|filter|tokeniz|shard|generat|upload",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"\b(?:global[ _])?(?:step|iter|iteration|update)\b\W{0,3}(\d[\d,]*)"
    r"(?:\s*(?:/|of)\s*(\d[\d,]*))?",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"\bepoch\b\W{0,3}(\d+)\s*(?:/|of)\s*(\d+)", re.IGNORECASE)
_VALUE = re.compile(
    r"['\"]?\b((?:train|training)?[ _/]?loss|lr|learning_rate|grad_norm|acc|accuracy|mfu)\b['\"]?"
    r"\s*[:=]?\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan)",
    re.IGNORECASE,
)
_LOGGED = "'loss':"
_TOTALS = frozenset(
    {"max_iters", "max_steps", "num_steps", "total_steps", "train_steps", "training_steps",
     "num_iterations", "iterations", "max_iterations", "n_steps", "steps", "num_train_steps",
     "iters", "train_iters"}
)  # fmt: skip
_OPTION = re.compile(r"--?([\w.-]+)[= ](\d[\d_]*)\b")


def declared_total(args: object, text: str = "") -> int | None:
    """The number of steps that the arguments of a run name, such as `--max_iters=5000`; None where
    they name none, or several that differ.

    Args:
        args: those of the run: a mapping, or a list.
        text: the words of a command.
    """
    found: set[int] = set()
    if isinstance(args, dict):
        named: Iterable[tuple[str, Any]] = args.items()
    else:
        words = " ".join(map(str, args)) if isinstance(args, (list, tuple)) else ""
        named = _OPTION.findall(f"{text} {words}")
    for name, value in named:
        number = str(value).replace("_", "")
        if str(name).rpartition(".")[2].replace("-", "_") in _TOTALS and number.isdigit():
            found.add(int(number))
    return found.pop() if len(found) == 1 else None


class _Bar:
    def __init__(self, found: Mapping[str, str], name: str) -> None:
        self.name = name
        self.done, self.total = _amount(found["done"]), _amount(found["total"])
        self.elapsed = _seconds(found["elapsed"])
        self.values = found["values"] or ""

    @property
    def ended(self) -> bool:
        return self.done >= self.total

    @property
    def share(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0


class LineProgress:
    """What one program prints of its progress. `total` is the number of steps that its arguments
    name."""

    def __init__(self, total: int | None = None) -> None:
        self._declared = total
        self._bars: dict[str, _Bar] = {}
        self._line: tuple[int, int | None] | None = None
        self._epochs: tuple[int, int] | None = None
        self._values: dict[str, float] = {}

    def read(self, text: str) -> None:
        """Look at what was written since."""
        for line in re.split(r"[\r\n]+", text):
            if line.strip():
                self._read(line[-_LONGEST:])

    def _read(self, line: str) -> None:
        bar = _BAR.search(line) if "%|" in line else None
        if bar is not None:
            name = bar["name"].strip(" :\x1b")
            if not _ASIDE.search(name):
                made = _Bar(bar.groupdict(), name)
                self._bars.pop(_without_numbers(name, made.total), None)
                self._bars[_without_numbers(name, made.total)] = made
                if len(self._bars) > _MOST_BARS:
                    self._bars.pop(next(iter(self._bars)))
                self._note_values(made.values)
            if _LOGGED in line:  # Hugging Face's Trainer prints these behind the bar
                self._note_values(line[bar.end() :])
            return
        step = _STEP.search(line)
        if step is not None:
            self._line = (_whole(step[1]), _whole(step[2]) if step[2] else None)
        epoch = _EPOCH.search(line)
        if epoch is not None:
            self._epochs = (int(epoch[1]), int(epoch[2]))
        if step is not None or epoch is not None or _LOGGED in line:
            self._note_values(line)

    def _note_values(self, text: str) -> None:
        for name, value in _VALUE.findall(text):
            self._values[name.lower().strip(" _/")] = float(value)

    def report(self) -> Report | None:
        """How far the program is; None where it has printed nothing of it."""
        found = self._of_bars() or self._of_lines()
        return None if found is None else found._replace(metrics=dict(self._values))

    def _of_bars(self) -> Report | None:
        going = [bar for bar in self._bars.values() if not bar.ended]
        outer = max(going or self._bars.values(), key=lambda bar: bar.elapsed, default=None)
        if outer is None:
            return None
        epoch = _EPOCH_NAME.search(outer.name)
        if epoch is not None and self._epochs is None and outer.total > 1:
            # One bar for each epoch: how many there will be, nobody has said.
            done, total = int(epoch[1]) * outer.total + outer.done, self._declared
            return Report(step=done, total=total, source="bar")
        inner = max(
            (bar for bar in going if bar is not outer), key=lambda bar: bar.elapsed, default=None
        )
        within = inner.share if inner is not None and outer.total <= 1000 else 0.0
        return Report(step=min(outer.done + within, outer.total), total=outer.total, source="bar")

    def _of_lines(self) -> Report | None:
        if self._line is not None:
            step, total = self._line
            return Report(step=step, total=total or self._declared, source="log")
        if self._epochs is not None:
            return Report(step=self._epochs[0], total=self._epochs[1], unit="epoch", source="log")
        return None


def _without_numbers(name: str, total: float) -> str:
    return f"{re.sub(r'[0-9]+', '', name)} {total}"


def _amount(text: str) -> float:
    scale = text[-1] if text[-1:].isalpha() else ""
    try:
        return float(text.removesuffix(scale)) * _SCALES[scale]
    except ValueError:
        return 0.0


def _seconds(clock: str) -> float:
    seconds = 0
    for part in clock.split(":"):
        seconds = seconds * 60 + (int(part) if part.isdigit() else 0)
    return seconds


def _whole(text: str) -> int:
    return int(text.replace(",", "") or 0)
