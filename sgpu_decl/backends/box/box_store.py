"""The MLflow store that a project has on a box: its metrics are read there, and its pages can be
opened here."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgpu_decl.agent.box.store_requests import PATIENCE
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.errors import BackendError
from sgpu_decl.tracking.last_metrics import LastMetrics, MetricSource
from sgpu_decl.tracking.store_location import sqlite_file, ui_command
from sgpu_decl.tracking.stores.sqlite import REVISIONS, SqlRunStore
from sgpu_decl.tracking.stores.store_protocol import MetricHistory, StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxStore(MetricSource):
    """The store at `uri` on a box. `attempt` is the folder of one that is tracked in it."""

    box: Box
    uri: str
    attempt: str = field(compare=False)

    def last_metrics(self, runs: Mapping[str, str]) -> LastMetrics:
        try:
            return LastMetrics(by_run=self._opened().last_metrics(runs))
        except StoreError as error:
            return LastMetrics(by_run={}, problems=(str(error),))

    def metric_history(self, run_id: str, names: Sequence[str]) -> MetricHistory:
        return self._opened().metric_history(run_id, names)

    def log_text(self, run_id: str, name: str, text: str) -> None:  # noqa: ARG002
        raise StoreError(
            f"its store on `{self.box.host}` takes no files from here; a tracking server does, "
            "which a run names with `mlflow.tracking_uri`"
        )

    def serve_pages(self, port: int, ready: Callable[[], None]) -> None:
        there = self.box.ask("claim_loopback_port")["port"]
        file = sqlite_file(self.uri)
        words = shlex.split(ui_command(self.uri, home=file.parent) or "") if file else []
        message = {"folder": self.attempt, "words": words, "port": there}
        tunnel = self.box.tunnel(port, there)
        try:
            tunnel.send("serve_store", message, patience=2 * PATIENCE)
            ready()
            tunnel.wait()
        except BackendError as error:
            if error.code == "mlflow_missing":
                error.hint = (
                    f"install it there, on `{self.box.host}`; what gc has deleted of the "
                    "environment of a run, its next apply brings back"
                )
            raise
        finally:
            tunnel.close()

    def _opened(self) -> SqlRunStore:
        """Raises StoreError: the box does not answer, or the store is of an unknown MLflow."""
        ((schema,),) = self._rows("SELECT version_num FROM alembic_version", ())
        if schema not in REVISIONS:
            raise StoreError(f"the schema {schema} of {self.uri} on {self.box.host} is unknown")
        return SqlRunStore(Path(self.uri), self._connected)

    @contextmanager
    def _connected(self, _: Path) -> "Iterator[_BoxDatabase]":
        yield _BoxDatabase(self._rows)

    def _rows(self, statement: str, values: Sequence[Any]) -> list[list[Any]]:
        asked = {"folder": self.attempt, "statement": statement, "values": list(values)}
        try:
            return list(self.box.ask("read_store", **asked)["rows"])
        except BackendError as error:
            raise StoreError(error.message) from error


@dataclass(frozen=True, slots=True)
class _BoxDatabase:
    """What `SqlRunStore` needs of a connection to read."""

    execute: Callable[[str, Sequence[Any]], list[list[Any]]]
