from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.tracking.run_description import parameters, tracking_request
from sgpu_decl.tracking.tracking_request import from_json, to_json

SPEC = Spec('{"args":{"betas":[0.9,0.95],"lr":0.001,"note":"x"},"gpus":2,"timeout":null}')


def asked(**changes: Any) -> Any:
    given: dict[str, Any] = {
        "ref": AttemptRef(Address.run("train"), 8),
        "spec": SPEC,
        "home": Path("/p/.sgpu"),
        "base": Path("/p"),
        "token": "T",
        "experiment": None,
        "names_experiment": False,
        "run_name": None,
        "tracking_uri": None,
        "system_metrics": True,
        "facts": {"lineage": "L", "code_digest": "sha256:1"},
        "tags": {"team": "vision", "sgpu.address": "not yours"},
    }
    return tracking_request(**{**given, **changes})


def test_a_request_survives_its_file() -> None:
    assert from_json(to_json(asked())) == asked()


def test_experiment_and_run_are_named_after_the_attempt() -> None:
    assert (asked().experiment, asked().run_name) == ("train", "train#8")
    named = asked(experiment="fsdp", run_name="first")
    assert (named.experiment, named.run_name) == ("fsdp", "first")


def test_artifacts_lie_where_the_user_says_and_else_beside_the_own_store() -> None:
    assert asked().artifacts == "/p/.sgpu/mlartifacts"
    assert asked(artifact_location="kept").artifacts == "/p/kept"
    assert asked(artifact_location="s3://bucket/kept").artifacts == "s3://bucket/kept"


def test_every_leaf_of_the_config_is_a_parameter_of_ours() -> None:
    assert asked().params == {
        "sgpu.args.betas": "[0.9,0.95]",
        "sgpu.args.lr": "0.001",
        "sgpu.args.note": "x",
        "sgpu.gpus": "2",
        "sgpu.timeout": "null",
    }


def test_tags_are_the_users_and_ours_and_ours_win() -> None:
    assert asked().tags == {
        "team": "vision",
        "sgpu.address": "run.train",
        "sgpu.attempt": "8",
        "sgpu.token": "T",
        "sgpu.lineage": "L",
        "sgpu.code_digest": "sha256:1",
    }


def test_only_our_own_store_is_told_where_artifacts_go() -> None:
    assert asked().artifacts == "/p/.sgpu/mlartifacts"
    assert asked(tracking_uri="http://host").artifacts is None


def test_a_long_value_is_cut_and_an_unfit_name_mended() -> None:
    assert parameters({"args": {"a$b": "x" * 7000}}) == {"sgpu.args.a_b": "x" * 6000}


leaves = st.none() | st.booleans() | st.integers() | st.text()
trees = st.dictionaries(
    st.text(), st.recursive(leaves, lambda inner: st.dictionaries(st.text(), inner), max_leaves=8)
)


@pytest.mark.expensive
@given(trees)
def test_every_parameter_fits_mlflow(spec: dict[str, Any]) -> None:
    for name, value in parameters(spec).items():
        assert name.startswith("sgpu.")
        assert len(name) <= 250
        assert len(value) <= 6000


def test_the_axes_of_a_cell_are_parameters_of_their_own() -> None:
    found = parameters({"args": ["--lr", "0.001"]}, "lr=0.001,opt=adam")
    assert found["sgpu.matrix.lr"] == "0.001"
    assert found["sgpu.matrix.opt"] == "adam"
