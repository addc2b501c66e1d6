"""A launch that a backend carries out, and its config, which is read from its spec."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord
from sgpu_decl.model.step_progress import Progress, Quiet

if TYPE_CHECKING:  # `sgpu status` knows backends, and reads no config
    from sgpu_decl.code.code_store import CodeStore
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.model.call import Call

NO_CONFIG = "unknown_config"
"""The code of an error about an attempt whose config this sgpu cannot read."""


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """A launch to carry out: its record. `call` is the
    called function that ranks run, if the launch is a call of one. `git` is that of the
    plan. `waits_for` are the launches of `record.wait_for` that are still active. `after` are
    those of other runs that it looks at: `record.after`, and the attempts whose output it reads.
    `group` are the launches that are started as one, this one among them, if they are several.
    `progress` is told how much of the code has been copied for this launch alone. `control_key` is
    what its nodes prove to each other, a random one unless given.
    A launch that a crash left staged is completed without them."""

    record: LaunchRecord
    waits_for: tuple[LaunchRecord, ...] = ()
    after: tuple[LaunchRecord, ...] = ()
    group: tuple[LaunchRecord, ...] = ()
    call: "Call | None" = None
    git: Mapping[str, str] = field(default_factory=dict)
    progress: Progress = field(default_factory=Quiet, compare=False)
    control_key: str | None = field(default=None, repr=False)

    @property
    def ref(self) -> AttemptRef:
        return self.record.ref

    @property
    def inputs(self) -> LaunchInputs:
        return self.record.inputs

    @property
    def of_file(self) -> bool:
        """Whether a job launches a file of the repository by it, which has no config."""
        if self.ref.address.kind is not Kind.JOB:
            return False
        from sgpu_decl.model.job import NOTEBOOK, SCRIPT  # `sgpu status` knows no jobs' specs

        return not self.inputs.spec.fields.keys().isdisjoint((SCRIPT, NOTEBOOK))

    @property
    def backend(self) -> "BackendOptions":
        """The `backend` of what it launches. Raises BackendError: a record has one that nobody can
        read."""
        from sgpu_decl.config.backend import read_backend

        if not self.of_file:
            return self.config.backend
        try:
            return read_backend(self.inputs.spec.fields.get("backend", {}))
        except ValueError as error:
            raise unknown_config(f"`{self.ref}`", "sgpu state rm", error) from error

    @property
    def config(self) -> "RunConfig":
        return config_of(self.record.ref, self.record.inputs)

    @property
    def facts(self) -> dict[str, str]:
        """What the MLflow run of the attempt says of the launch, as tags `sgpu.<name>`."""
        code = self.inputs.code_digest or "none"
        return {"lineage": self.record.lineage, "code_digest": code}

    @property
    def tags(self) -> dict[str, str]:
        """The user's own tags of the MLflow run."""
        return {**self.config.tags, **(self.call.tags if self.call else {})}

    def folder(self, project: Path) -> Path:
        """The folder that paths in the run's YAML start from."""
        return self.record.folder(project)

    def code_root(self, project: Path) -> Path:
        """The folder that its code was taken from."""
        return self.folder(project) / (self.config.code.root or ".")


def config_of(ref: AttemptRef, inputs: LaunchInputs) -> "RunConfig":
    """The config of a launch.

    Raises:
        BackendError: it is that of a newer sgpu, or something else has written the record.
    """
    from sgpu_decl.config.run import run_config

    try:
        return run_config(ref.address.name, inputs.spec)
    except ValueError as error:
        raise unknown_config(f"`{ref}`", f"sgpu state rm {ref.address}", error) from error


def foreign_config(platform: str) -> BackendError:
    """The error of a record of a launch on `platform` whose config is that of another backend."""
    return BackendError(
        f"the state has a config of another backend for what was launched on {platform}",
        hint="something else than sgpu has written it: `sgpu state rm` removes it from the state",
        code=NO_CONFIG,
    )


def unknown_config(of: str, way_out: str, error: ValueError) -> BackendError:
    """The error of a recorded config that cannot be read.

    Args:
        of: what the state has it of.
        way_out: the command that removes that from the state.
    """
    from pydantic import ValidationError

    where = ""
    with suppress(UnicodeError):  # the message has a sign that no text has
        if isinstance(error, ValidationError):
            where = ".".join(map(str, error.errors()[0]["loc"]))
    return BackendError(
        f"the state has a config of {of} that this sgpu cannot read"
        + (f": see `{where}` in it" if where else ""),
        hint="upgrade sgpu, if a newer one wrote it; if something else did, "
        f"`{way_out}` removes it from the state",
        code=NO_CONFIG,
    )


def require_code(store: "CodeStore", request: LaunchRequest) -> None:
    """See that the code of a launch is in the store of this machine.

    Raises:
        BackendError: it is not.
    """
    digest = request.inputs.code_digest
    if digest is not None and store.manifest(digest) is None:
        raise BackendError(
            f"the code of `{request.ref}` ({digest[:19]}) is not in the store",
            hint="plan again on this machine",
            code="code_missing",
        )


def output_gone(ref: AttemptRef, upstream: AttemptRef) -> BackendError:
    return BackendError(
        f"`{ref}` reads the output of `{upstream}`, which is gone",
        hint=f"`--rerun {upstream.address}` makes it again; `sgpu gc` without `--all` keeps the "
        "newest success of each run",
        code="output_gone",
    )


def upstream_elsewhere(
    ref: AttemptRef, upstream: AttemptRef, elsewhere: str, *, waits: bool
) -> BackendError:
    """The error for an upstream whose launch folder the nodes of a run do not see.

    Args:
        elsewhere: where it was launched, such as `on another cluster`.
        waits: whether it may go on.
    """
    again = f"`--rerun {upstream.address}` launches it again, where this run will be"
    return BackendError(
        f"`{ref}` comes after `{upstream}`, which was launched {elsewhere}",
        hint=f"apply again once `{upstream}` has ended" if waits else again,
        code="upstream_elsewhere",
    )


def require_upstreams(
    request: LaunchRequest,
    elsewhere: str,
    *,
    is_beside: Callable[[LaunchRecord], bool],
    has_output: Callable[[LaunchRecord], bool],
) -> None:
    """Refuse a launch whose ranks would not find an upstream, or the output of one.

    Args:
        elsewhere: says where an upstream was launched that is not beside it.
        is_beside: whether an upstream of the same backend lies where this launch sees it.
        has_output: whether the output of one that has ended is still there.

    Raises:
        BackendError: one is gone, or elsewhere.
    """
    from sgpu_decl.model.run_outputs import outputs_read

    known = {upstream.ref: upstream for upstream in request.after}
    for ref in dict.fromkeys((*known, *outputs_read(request.inputs.spec))):
        upstream, waits = known.get(ref), ref in request.record.after
        if upstream is None:
            raise output_gone(request.ref, ref)
        if upstream.backend != request.record.backend:
            place = f"on the backend `{upstream.backend}`"
            raise upstream_elsewhere(request.ref, ref, place, waits=waits)
        if not is_beside(upstream):
            raise upstream_elsewhere(request.ref, ref, elsewhere, waits=waits)
        if not waits and not has_output(upstream):
            raise output_gone(request.ref, ref)
