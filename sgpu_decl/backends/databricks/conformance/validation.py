"""What `config:validate` says of the runs that sgpu would submit: an image, a base environment of
the platform, code on a volume."""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sgpu_decl.backends.databricks.api.workspace_files import VOLUMES
from sgpu_decl.backends.databricks.conformance.comparison import (
    Refusal,
    compared,
    lacks_api,
    request,
)
from sgpu_decl.backends.databricks.launching.submit import StagedLaunch
from sgpu_decl.backends.databricks.planning.remote_checks import VALIDATION, validation_body
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.config.run import RunConfig
from sgpu_decl.model.doctor_finding import Finding, fail, ok, warn

_PLAIN: Mapping[str, Any] = {
    "name": "doctor",
    "gpus": 1,
    "type": "A10",
    "command": ["true"],
    "backend": "databricks",
}
_SOME_VOLUME = "/Volumes/main/default/sgpu"
_NOWHERE = "sgpu-doctor"  # no path, and no priority
_PRIORITIES = ("BEST_EFFORT", "CRITICAL", "NORMAL")  # those that any client knows


def submission_findings(workspace: Workspace) -> Generator[Finding, None, None]:
    """Raises BackendError: the workspace cannot be asked."""
    yield from _Validation(workspace).findings()


class _Validation:
    def __init__(self, workspace: Workspace) -> None:
        self._connection = workspace.connection
        root = workspace.area.layout.root
        self._volume = root if root.startswith(VOLUMES) else None
        folder = workspace.area.layout.commands(f"{root}/runs/doctor")
        config = RunConfig.model_validate(_PLAIN)
        self._staged = StagedLaunch(config=config, folder=folder, experiments=workspace.experiments)

    def findings(self) -> Iterator[Finding]:
        plain = self._validate(self._body())
        there = not lacks_api(plain)
        yield compared(
            "validation", there, f"the workspace has {'' if there else 'no '}`config:validate`"
        )
        if not there:
            return
        if isinstance(plain, Refusal):
            yield fail("plain run", *_refusal(plain.message))
            return
        if plain:
            yield fail("plain run", *_refusal(_words(plain)))
            return
        yield ok("plain run", "a plain run would be accepted")
        wrong = self._errors(self._with_compute(accelerator_count=0))
        if not wrong:
            yield warn(
                "validation",
                "`config:validate` finds no mistake in a run with 0 GPUs",
                "mistakes are found when the run is submitted",
            )
            return
        named = any(item.get("path") for item in wrong)
        yield compared(
            "validation-names-fields",
            named,
            f"`config:validate` {'names' if named else 'does not name'} the field that is wrong",
        )
        yield from self._image(named=named)
        yield from self._managed_base(named=named)
        yield from self._code_on_volume(named=named)
        if named:
            yield from self._paths()
            yield from self._priorities()

    def _image(self, *, named: bool) -> Iterator[Finding]:
        errors = self._errors(self._body(image="main.default.image:1"))
        yield from self._accepted(
            "image-with-environment", errors, "environment", named=named,
            what="a run with an image and an environment",
        )  # fmt: skip

    def _managed_base(self, *, named: bool) -> Iterator[Finding]:
        errors = self._errors(self._body(env={"base": "ai-5"}))
        yield from self._accepted(
            "managed-base", errors, "environment", named=named,
            what="a run with the base environment `databricks_ai_v5`",
        )  # fmt: skip

    def _code_on_volume(self, *, named: bool) -> Iterator[Finding]:
        code = f"{self._volume or _SOME_VOLUME}/objects/code/doctor.tar.gz"
        errors = self._errors(validation_body(replace(self._staged, code=code)))
        if errors and self._volume is None:
            # There need not be such a volume.
            yield ok(
                "code-on-volume", f"not measured: `backend.staging` is no volume ({_words(errors)})"
            )
            return
        yield from self._accepted(
            "code-on-volume", errors, "code_source_path", named=named,
            what="a run with its code on a volume",
        )  # fmt: skip

    def _accepted(
        self, id_: str, errors: list[dict[str, Any]], field: str, *, named: bool, what: str
    ) -> Iterator[Finding]:
        if not errors:
            yield compared(id_, found=True, text=f"{what} would be accepted")
        elif any(field in str(error.get("path")) for error in errors):
            yield compared(id_, found=False, text=f"{what} would be refused: {_words(errors)}")
        elif named:  # something else is wrong with it: an image that is not there
            yield compared(
                id_, found=True, text=f"{what} would be accepted, but for: {_words(errors)}"
            )
        else:
            yield warn(id_, *_refusal(_words(errors)))

    def _paths(self) -> Iterator[Finding]:
        """Where the command and the experiment may lie, if `config:validate` looks at that."""
        for id_, field, place, allowed in (
            ("command-on-volume", "command_path", self._volume or _SOME_VOLUME, True),
            ("experiment-below-workspace", "mlflow_experiment_directory", "/Shared", False),
        ):
            if self._errors_at(field, _NOWHERE):
                fine = not self._errors_at(field, place)
                text = f"`{place}` as `{field}` would be {'accepted' if fine else 'refused'}"
                yield compared(id_, fine is allowed, text)

    def _errors_at(self, field: str, path: str) -> bool:
        if field == "command_path":
            body = validation_body(replace(self._staged, folder=path))
        else:
            body = validation_body(replace(self._staged, experiments=path))
        return any(field in str(error.get("path")) for error in self._errors(body))

    def _priorities(self) -> Iterator[Finding]:
        def refused(priority: str) -> bool:
            body = self._with_compute(provisioned_capacity_id=_NOWHERE)
            body["task"]["priority_class"] = priority
            return any("priority_class" in str(error.get("path")) for error in self._errors(body))

        if refused("SGPU_DOCTOR"):
            known = tuple(one for one in _PRIORITIES if not refused(one))
            yield compared("priorities", known, f"priorities are {', '.join(known) or 'refused'}")

    def _body(self, **fields: Any) -> dict[str, Any]:
        config = RunConfig.model_validate({**_PLAIN, **fields})
        return validation_body(replace(self._staged, config=config))

    def _with_compute(self, **fields: Any) -> dict[str, Any]:
        body = self._body()
        body["task"]["deployments"][0]["compute"] |= fields
        return body

    def _errors(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """What is wrong with a body; a refusal of the whole is one error."""
        answer = self._validate(body)
        return [{"message": answer.message}] if isinstance(answer, Refusal) else answer

    def _validate(self, body: dict[str, Any]) -> list[dict[str, Any]] | Refusal:
        answer = request(self._connection, "POST", VALIDATION, body=body)
        return answer if isinstance(answer, Refusal) else list(answer.get("errors") or ())


def _words(errors: list[dict[str, Any]]) -> str:
    return "; ".join(str(error.get("message")) for error in errors)[:300]


def _refusal(words: str) -> tuple[str, str]:
    """The text and the hint of a finding about a run that `config:validate` refuses."""
    hint = "correct what it names, or ask an admin of the workspace"
    return f"`config:validate` refuses it: {words}", hint
