"""How far a rank is, as `progress.json` in its folder: the monitor of its node reads that.

`runtime.report_progress` writes it. For programs that say it to a library instead, hooks on these
write it: steps that are logged to MLflow, and the batches of Lightning's Trainer, by the public
`Callback` (https://lightning.ai/docs/pytorch/stable/extensions/callbacks.html).
"""

import os
import sys
from json import dumps
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any

_TRAINER = ".trainer.trainer"  # the module of a package of Lightning that has its `Trainer`

_PAUSE = 0.5  # seconds between two reports
_MOST_METRICS = 20
_written: "dict[str, float]" = {}


def is_due(source: str) -> bool:
    """Whether it is time for the next report of a source."""
    return monotonic() - _written.get(source, float("-inf")) >= _PAUSE


def write_progress(
    step: object, total: object, metrics: "Mapping[str, object]", *, source: str = "reported"
) -> None:
    """Write a report; does nothing in a process that is no rank, and never fails."""
    errors = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if errors is None or (source != "reported" and "reported" in _written):
        return  # what the program says itself counts more
    _written[source] = monotonic()
    path = os.path.join(os.path.dirname(errors), "progress.json")
    names = sorted(metrics, key=lambda name: "loss" not in str(name))[:_MOST_METRICS]
    kept = {name: metrics[name] for name in names}
    report = {"step": step, "total": total, "metrics": kept, "source": source}
    try:
        text = dumps(report, default=_plain)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{path}.new", path)
    except (OSError, TypeError, ValueError, RuntimeError):
        return


def _plain(value: object) -> object:
    """A number as JSON has it: that of a tensor or an array of one element, too."""
    item: Any = getattr(value, "item", None)
    if not callable(item):
        raise TypeError(f"{type(value).__name__} is no number")
    return item()


def follow_mlflow(module: "ModuleType") -> None:
    """Report the steps that are logged to MLflow from now on.

    Args:
        module: `mlflow.tracking.client`, once it is imported.
    """
    client: Any = module.MlflowClient
    log_metric, log_batch = client.log_metric, client.log_batch

    def logged_metric(
        self: object, run_id: str, key: str, value: float,
        timestamp: object = None, step: object = None, *args: object, **more: object,
    ) -> object:  # fmt: skip
        _note({key: value}, step)
        return log_metric(self, run_id, key, value, timestamp, step, *args, **more)

    def logged_batch(
        self: object, run_id: str, metrics: "Any" = (), *args: object, **more: object
    ) -> object:
        by_step: dict[int, dict[object, object]] = {}
        for one in metrics if isinstance(metrics, list | tuple) else ():
            step, key = getattr(one, "step", None), getattr(one, "key", None)
            if isinstance(step, int) and isinstance(key, str):
                by_step.setdefault(step, {})[key] = getattr(one, "value", None)
        for step, values in by_step.items():
            _note(values, step)
        return log_batch(self, run_id, metrics, *args, **more)

    client.log_metric = _as(logged_metric, log_metric)
    client.log_batch = _as(logged_batch, log_batch)


_noted: "dict[str, object]" = {}


def _note(values: "Mapping[object, object]", step: object) -> None:
    """What is wrong with a metric, MLflow says."""
    names = [name for name in values if isinstance(name, str)]
    if not isinstance(step, int) or any(name.startswith("system/") for name in names):
        return
    _noted.update({name: values[name] for name in names})
    if is_due("mlflow"):
        write_progress(step, None, _noted, source="mlflow")


def follow_lightning(module: "ModuleType") -> None:
    """Report the steps of each `Trainer` of Lightning.

    Args:
        module: `trainer.trainer` of one of its packages, once it is imported.
    """
    trainer: Any = module.Trainer
    made = trainer.__init__

    def init(self: "Any", *args: object, **options: object) -> None:
        made(self, *args, **options)
        if self.is_global_zero:
            self.callbacks.append(
                _lightning_callback(sys.modules[module.__name__.removesuffix(_TRAINER)])
            )

    trainer.__init__ = _as(init, made)


def _lightning_callback(package: "ModuleType") -> object:
    base: Any = package.Callback

    class Progress(base):  # type: ignore[misc]  # of a library that may be absent
        def on_train_start(self, trainer: "Any", module: object) -> None:  # noqa: ARG002
            try:
                self._total = trainer.estimated_stepping_batches
            except Exception:  # noqa: BLE001  Lightning cannot tell for each training
                self._total = None
            self._report(trainer)

        def on_train_batch_end(self, trainer: "Any", *_: object) -> None:
            if is_due("trainer") or trainer.global_step == self._total:
                self._report(trainer)

        def _report(self, trainer: "Any") -> None:
            write_progress(
                trainer.global_step, self._total, trainer.callback_metrics, source="trainer"
            )

    return Progress()


def _as(made: "Callable[..., Any]", original: "Callable[..., Any]") -> "Callable[..., Any]":
    """A function with the name, the documentation and the signature of another one."""
    from functools import update_wrapper

    return update_wrapper(made, original)
