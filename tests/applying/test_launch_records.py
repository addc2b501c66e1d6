"""What a launch is told of those of other runs."""

from dataclasses import replace

from sgpu_decl.applying.launch_records import upstreams_of
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord

TRAIN, LABEL, OTHER = (AttemptRef(Address.run(name), 7) for name in ("train", "label", "other"))


def record(ref: AttemptRef, text: str = "{}") -> LaunchRecord:
    return LaunchRecord(
        ref=ref,
        backend="local",
        token=f"token of {ref}",
        lineage="lineage",
        owner="sgpu.yml",
        inputs=LaunchInputs(spec=Spec(text), fingerprint=""),
    )


def test_a_launch_is_told_of_those_that_it_comes_after_or_whose_output_it_reads() -> None:
    known = {ref: record(ref) for ref in (TRAIN, LABEL, OTHER)}
    reads = '{"args":["${run.train#7.output}","${run.label#7.output}"]}'
    evaluate = record(AttemptRef(Address.run("evaluate"), 1), reads)

    assert upstreams_of(replace(evaluate, after=(TRAIN,)), known) == (known[TRAIN], known[LABEL])
    assert upstreams_of(record(evaluate.ref), known) == ()
    assert upstreams_of(evaluate, {}) == ()
