"""The MLflow run of an attempt, as the code of a rank sees it.

A tracker makes the run while ranks start. The first import of MLflow waits for it and sets
`MLFLOW_TRACKING_URI`, `MLFLOW_RUN_ID` and `MLFLOW_EXPERIMENT_ID`, so that the first run that the
code starts is this one. If the code chooses another store or experiment, it wants another run.
MLflow would refuse that, because `MLFLOW_RUN_ID` names a run of ours. So our variables are removed,
and set again once the code chooses our store and experiment again.
"""

import functools
import json
import os
import sys
import time

from sgpu_decl.rank.import_hooks import on_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any

_PATIENCE = 130.0  # seconds: the supervisor gives up before, and says so in the file
_PAUSE = 0.02
_STORE, _RUN, _EXPERIMENT = "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID"
_NAME = "MLFLOW_EXPERIMENT_NAME"
_CHOICES = (_STORE, _EXPERIMENT, _NAME)


def join_run(folder: str, variables: "Mapping[str, str]", environ: "Mapping[str, str]") -> None:
    """Make the attempt's run the active one of this process, which is about to import MLflow.

    Args:
        folder: the attempt's.
        variables: those that the run file sets.
        environ: the environment that the rank started with.
    """
    answer = _await_answer(folder)
    if "env" not in answer:
        if environ["RANK"] == "0":
            text = f"sgpu: MLflow tracking is off for this run: {answer.get('error')}"
            print(text, file=sys.stderr)
        return
    changed = {name for name in _CHOICES if os.environ.get(name) != environ.get(name)}
    membership = _Membership(folder, answer)
    membership.enter(changed, keeps_run=_RUN in variables)
    on_import("mlflow.environment_variables", after=membership.watch_choices)
    on_import("mlflow.tracking.fluent", after=membership.watch_starts)
    on_import("mlflow.tracking.fluent", after=membership.settle_experiments)
    on_import("mlflow.models.model", after=membership.join_models)
    on_import("mlflow.tracking._tracking_service.client", after=membership.watch_runs)


def _await_answer(folder: str) -> "dict[str, Any]":
    """Return the answer of the tracker, which may be the reason why there is no run."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        try:
            with open(folder + "/mlflow.json", encoding="utf-8") as file:
                return dict(json.load(file))
        except FileNotFoundError:
            time.sleep(_PAUSE)
    return {"error": "the tracker did not answer"}


class _Membership:
    """Sets and removes our variables, as the code chooses stores and experiments."""

    def __init__(self, folder: str, answer: "Mapping[str, Any]") -> None:
        self._folder = folder
        self._own: dict[str, str] = dict(answer["env"])
        self._name: str = answer["experiment"]
        self._removed: dict[str, str] = {}
        self._names: dict[tuple[str, str], str] = {}

    def enter(self, changed: "set[str]", *, keeps_run: bool) -> None:
        """Set our variables, except those that the code has set itself (`changed`)."""
        if _STORE in changed:
            return
        os.environ[_STORE] = self._own[_STORE]
        if not changed and not keeps_run:  # else another experiment in our store, or another run
            os.environ.update(self._own)

    # What the code chooses

    def watch_choices(self, module: "ModuleType") -> None:
        """Follow `set_tracking_uri` and `set_experiment`, which set variables for child
        processes."""
        for name, follow in ((_STORE, self._follow_store), (_EXPERIMENT, self._follow_experiment)):
            variable = getattr(module, name, None)
            if variable is not None:
                variable.set = _then(variable.set, follow)

    def watch_starts(self, module: "ModuleType") -> None:
        """Follow choices by arguments of `start_run`, and by variables that the code sets
        itself."""
        start = module.start_run

        @functools.wraps(start)
        def start_run(*args: "Any", **options: "Any") -> "Any":
            named = {**dict(zip(("run_id", "experiment_id"), args, strict=False)), **options}
            if named.get("run_id") is None:
                self._follow_store()
                self._follow_names()
                self._follow_arguments(named.get("experiment_id"), named.get("parent_run_id"))
            return start(*args, **options)

        _replace(module, "start_run", start_run)

    def settle_experiments(self, module: "ModuleType") -> None:
        """Make `set_experiment` hold in each rank, if several make the experiment at once.

        MLflow returns the experiment without choosing it if another process made it between
        MLflow's look and its own attempt to make it.
        """
        choose = module.set_experiment

        @functools.wraps(choose)
        def set_experiment(*args: "Any", **options: "Any") -> "Any":
            experiment = choose(*args, **options)
            if os.environ.get(_EXPERIMENT) == experiment.experiment_id:
                return experiment
            return choose(*args, **options)

        _replace(module, "set_experiment", set_experiment)

    def join_models(self, module: "ModuleType") -> None:
        """Let `log_model` log to our run if the code has opened none: MLflow opens the run for
        every other call, and makes a model without one."""
        log = module.Model.log

        @functools.wraps(log)
        def log_to_run(*args: "Any", **options: "Any") -> "Any":
            if options.get("run_id") is None and sys.modules["mlflow"].active_run() is None:
                self._follow_store()
                self._follow_names()
                options["run_id"] = os.environ.get(_RUN)
            return log(*args, **options)

        module.Model.log = log_to_run

    def _follow_store(self) -> None:
        if os.environ.get(_STORE) != self._own[_STORE]:
            self._remove(_RUN, _EXPERIMENT)
        else:
            self._set_again(_RUN, _EXPERIMENT)

    def _follow_experiment(self) -> None:
        if os.environ.get(_STORE) != self._own[_STORE]:
            return
        if os.environ.get(_EXPERIMENT) != self._own[_EXPERIMENT]:
            self._remove(_RUN)
        else:
            self._set_again(_RUN)

    def _follow_names(self) -> None:
        name = os.environ.get(_NAME)
        if name is not None and name != self._name:
            self._remove(_RUN, _EXPERIMENT)
        elif os.environ.get(_EXPERIMENT, self._own[_EXPERIMENT]) != self._own[_EXPERIMENT]:
            self._remove(_RUN)

    def _follow_arguments(self, experiment: object, parent: object) -> None:
        other_experiment = experiment is not None and str(experiment) != self._own[_EXPERIMENT]
        other_parent = parent is not None and parent != self._own[_RUN]
        if other_experiment or other_parent:
            self._remove(_RUN)

    def _remove(self, *names: str) -> None:
        for name in names:
            if os.environ.get(name) == self._own[name]:
                self._removed[name] = os.environ.pop(name)

    def _set_again(self, *names: str) -> None:
        for name in names:
            if name in self._removed:
                os.environ.setdefault(name, self._removed.pop(name))

    # What the code makes

    def watch_runs(self, module: "ModuleType") -> None:
        """Record the runs that the code makes besides ours, and tag them with the attempt."""
        client = module.TrackingServiceClient
        create = client.create_run
        ours = {
            "sgpu.address": os.environ["SGPU_ADDRESS"],
            "sgpu.attempt": os.environ["SGPU_ATTEMPT"],
        }

        @functools.wraps(create)
        def create_run(
            of: "Any",
            experiment_id: "Any",
            start_time: "Any" = None,
            tags: "Mapping[str, Any] | None" = None,
            *others: "Any",
            **options: "Any",
        ) -> "Any":
            tags = {**ours, **(tags or {})}
            run = create(of, experiment_id, start_time, tags, *others, **options)
            self._note(of, run)
            return run

        client.create_run = create_run

    def _note(self, client: "Any", run: "Any") -> None:
        uri, identity = str(client.tracking_uri), str(run.info.experiment_id)
        if (uri, identity) not in self._names:
            self._names[uri, identity] = str(client.get_experiment(identity).name)
        line = {
            "tracking_uri": uri,
            "experiment": self._names[uri, identity],
            "run_id": run.info.run_id,
        }
        try:
            path = self._folder + "/mlflow_elsewhere.jsonl"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            file = os.open(path, flags, 0o600)
            os.write(file, json.dumps(line).encode() + b"\n")
            os.close(file)
        except OSError as error:
            print(f"sgpu: a run of MLflow could not be noted: {error}", file=sys.stderr)


def _replace(module: "ModuleType", name: str, new: "Callable[..., Any]") -> None:
    """Replace a function of a module of MLflow, and of `mlflow` if it was imported ahead."""
    old = getattr(module, name)
    setattr(module, name, new)
    whole = sys.modules.get("mlflow")
    if getattr(whole, name, None) is old:
        setattr(whole, name, new)


def _then(step: "Callable[..., Any]", follow: "Callable[[], None]") -> "Callable[..., Any]":
    @functools.wraps(step)
    def both(*args: "Any", **options: "Any") -> "Any":
        value = step(*args, **options)
        follow()
        return value

    return both
