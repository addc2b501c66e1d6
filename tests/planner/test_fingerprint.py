import re
from typing import Any

import pytest

from sgpu_decl.model.address import Address
from sgpu_decl.model.jsonable import NO_FIELDS, Spec
from sgpu_decl.planner.fingerprint import fingerprint, token

SPEC: dict[str, Any] = {
    "gpus": 2,
    "launch": {"per": "node", "warm": "off"},
    "code": {"link": ["data"]},
}


def of(**changed: Any) -> str:
    return fingerprint(Spec.of({**SPEC, **changed}), "sha256:c")


@pytest.mark.parametrize(
    "changed",
    [
        {"timeout": "6h"},
        {"tags": {"a": "b"}},
        {"launch": {"per": "node", "warm": "auto"}},
        {"code": {"link": ["data"], "exclude": ["*.md"]}},
        {"mlflow": {"experiment": "x"}},
        {"backend": {"kind": "ray"}},
    ],
)
def test_how_it_is_launched_does_not_count(changed: dict[str, object]) -> None:
    assert of(**changed) == of()


@pytest.mark.parametrize(
    "changed",
    [
        {"gpus": 4},
        {"launch": {"per": "rank", "warm": "off"}},
        {"code": {"link": []}},
        {"env": {"variables": {"A": "1"}}},
        {"ray": {}},
        {"ray": {"port": 6379}},
        {"a_field_of_tomorrow": 1},
    ],
)
def test_what_is_computed_counts(changed: dict[str, object]) -> None:
    assert of(**changed) != of()


def test_how_a_ray_cluster_is_launched_does_not_count() -> None:
    assert of(ray={"port": 6379, "dashboard": True}) == of(ray={})
    assert of(ray={"num_cpus": 2}) != of(ray={})


def test_code_and_environment_count() -> None:
    digests = (None, "a", "b")
    made = {fingerprint(NO_FIELDS, code, env) for code in digests for env in digests}
    assert len(made) == 9


def test_a_token_fits_every_backend_and_names_one_launch() -> None:
    run = Address.run("a" * 100, "lr=" + "1" * 500)
    made = token("lineage", run, 1, "sha256:f")
    assert re.fullmatch(r"sgpu1-[a-z2-7]{52}", made)
    assert made == token("lineage", run, 1, "sha256:f")
    others = {
        token("lineage", run, 2, "sha256:f"),
        token("other", run, 1, "sha256:f"),
        token("lineage", Address.run("b"), 1, "sha256:f"),
        token("lineage", run, 1, "sha256:g"),
    }
    assert made not in others
    assert len(others) == 4
