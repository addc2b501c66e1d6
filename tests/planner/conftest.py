"""Builders of planner input: one place that knows what a wanted and a recorded run look like."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import pytest

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.backend_kinds import Capabilities
from sgpu_decl.model.desired import CodeFacts, DesiredRun, Rename
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.model.launch import LaunchInputs
from sgpu_decl.model.plan import Action, Change, Plan
from sgpu_decl.model.state import Attempt, Resource, State
from sgpu_decl.planner.fingerprint import fingerprint
from sgpu_decl.planner.plan_inputs import PlanInputs, PlanRequest
from sgpu_decl.planner.planner import plan
from sgpu_decl.planner.policy import OPTIONAL_FIELDS
from sgpu_decl.planner.renames import moved
from tests.support import some

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
CODE = "sha256:" + "c" * 64
CAPABILITIES = {
    "databricks": Capabilities(fields=OPTIONAL_FIELDS - {"ray"}, queues=False),
    "local": Capabilities(),
}
SPEC: dict[str, Json] = {"gpus": 2, "type": "A10", "entrypoint": "train.py", "args": {"n": 1}}


@dataclass(kw_only=True)
class World:
    """What a plan is made from. Methods change it and return it."""

    desired: dict[Address, DesiredRun] = field(default_factory=dict)
    resources: dict[Address, Resource] = field(default_factory=dict)
    active: list[Attempt] = field(default_factory=list)
    observed: dict[AttemptRef, AttemptView] = field(default_factory=dict)
    package_lists: dict[str, PackageList] = field(default_factory=dict)

    def want(
        self,
        name: str = "train",
        spec: Mapping[str, Json] = SPEC,
        *,
        key: str = "",
        code: str | None = CODE,
        changed: tuple[str, ...] = (),
        **other: object,
    ) -> "World":
        address = Address.run(name, key)
        facts = CodeFacts(digest=code, files=3, bytes=1234, changed=changed) if code else None
        base = DesiredRun(
            address=address,
            backend="local",
            owner="sgpu.yml",
            spec=Spec.of(spec),
            until="success",
            on_active="error",
            code=facts,
        )
        self.desired[address] = replace(base, **other)  # type: ignore[arg-type]
        return self

    def had(
        self,
        state: AttemptState,
        name: str = "train",
        spec: Mapping[str, Json] = SPEC,
        *,
        number: int = 7,
        failure: FailureClass | None = None,
        owner: str = "sgpu.yml",
        gone: bool = False,
        code: str | None = CODE,
        key: str = "",
    ) -> "World":
        recorded = Spec.of(spec)
        address = Address.run(name, key)
        attempt = Attempt(
            ref=AttemptRef(address, number),
            token=f"t{number}",
            backend="local",
            state=state,
            inputs=LaunchInputs(
                spec=recorded, fingerprint=fingerprint(recorded, code), code_digest=code
            ),
            created_at=NOW - timedelta(days=4),
            started_at=NOW - timedelta(hours=2),
            ended_at=None if state.active else NOW - timedelta(days=3),
            failure=failure,
        )
        self.resources[address] = Resource(
            address=address, backend="local", owner=owner, spec=recorded, last=attempt, gone=gone
        )
        if state.active:
            self.active.append(attempt)
        return self

    def state(self) -> State:
        return State(
            lineage="lineage-1",
            serial=5,
            resources=self.resources,
            active=tuple(self.active),
            package_lists=self.package_lists,
        )

    def plan(
        self,
        *,
        owner: str | None = "sgpu.yml",
        request: PlanRequest | None = None,
        findings: Sequence[Diagnostic] = (),
        capabilities: Mapping[str, Capabilities] = CAPABILITIES,
        renames: Sequence[Rename] = (),
        needed: Mapping[AttemptRef, AttemptRef] = MappingProxyType({}),
        **asked: object,
    ) -> Plan:
        request = request or PlanRequest(project="/p", **asked)  # type: ignore[arg-type]
        return plan(
            PlanInputs(
                request=replace(request, owner=owner),
                state=self.state(),
                observed=self.observed,
                now=NOW,
                tool_version="0.1.0",
                config_digest="sha256:0",
                capabilities=capabilities,
                desired=tuple(self.desired.values()),
                findings=findings,
                renames=renames,
                needed=needed,
            )
        )

    def change(self, **asked: object) -> Change:
        (change,) = self.plan(**asked).changes  # type: ignore[arg-type]
        return change

    def record(self, plan: Plan, ended: AttemptState = AttemptState.SUCCEEDED) -> "World":
        """Record what applying `plan` would: launches end as `ended`."""
        self.package_lists |= {item.digest: item for item in plan.package_lists}
        moves = {item.address: item.moved_from for item in plan.changes if item.moved_from}
        self.resources = dict(moved(self.state(), moves).resources)
        for change in plan.changes:
            launch = change.launch
            known = self.resources.get(change.address)
            if change.kind is Kind.ENVIRONMENT and change.action in (Action.CREATE, Action.UPDATE):
                assert launch is not None
                self.resources[change.address] = Resource(
                    address=change.address,
                    backend=change.backend,
                    owner=launch.owner,
                    spec=launch.inputs.spec,
                    last=None,
                )
            elif change.action in (Action.FORGET, Action.DESTROY):
                assert known is not None
                self.resources[change.address] = replace(known, gone=True)
                self._stop(change.address, launch.stop if launch else ())
            elif change.action is Action.UPDATE:
                assert known is not None
                assert launch is not None
                self.resources[change.address] = replace(
                    known, spec=launch.inputs.spec, owner=launch.owner
                )
            elif change.action in (Action.CREATE, Action.REPLACE):
                self._stop(change.address, launch.stop if launch else ())
                self._launch(change, ended)
        return self

    def _launch(self, change: Change, ended: AttemptState) -> None:
        launch = some(change.launch)
        assert launch.token is not None
        assert change.attempt is not None
        attempt = Attempt(
            ref=AttemptRef(change.address, change.attempt),
            token=launch.token,
            backend=change.backend,
            state=ended,
            inputs=launch.inputs,
            created_at=NOW,
        )
        if ended.active:
            self.active.append(attempt)
        self.resources[change.address] = Resource(
            address=change.address,
            backend=change.backend,
            owner=launch.owner,
            spec=launch.inputs.spec,
            last=attempt,
        )

    def _stop(self, address: Address, numbers: Sequence[int]) -> None:
        stopped = {AttemptRef(address, number) for number in numbers}
        self.active = [attempt for attempt in self.active if attempt.ref not in stopped]
        known = self.resources.get(address)
        if known is not None and known.last is not None and known.last.ref in stopped:
            last = replace(known.last, state=AttemptState.CANCELLED)
            self.resources[address] = replace(known, last=last)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def new_world() -> Callable[[], World]:
    return World
