import pytest

from tests.config.conftest import outcome

RUN = "name: a\ngpus: 1\ntype: CPU\ncommand: 'echo ${{var.w}}'\nvariables: {{w: {0}}}\n"


@pytest.mark.parametrize(
    ("entry", "code", "hint"),
    [
        ("{lookup: BI}", "wrong_type", "write `lookup: {warehouse: NAME}`"),
        ("{lookup: {warehouse: a, job: b}}", "wrong_type", "write `lookup: {warehouse: NAME}`"),
        ("{lookup: {warehouse: 'a}b'}}", "wrong_type", "write `lookup: {warehouse: NAME}`"),
        ("{lookup: {warehous: a}}", "unknown_value", "did you mean `warehouse`?"),
        ("{lookup: {metastore: a}}", "unknown_value", "known: `warehouse`"),
        ("{lookup: {pool: a}}", "unknown_value", "reserved pools have no names"),
        ("{lookup: {budget: a}}", "unknown_value", "`budget` of a run or job takes the name"),
        ("{lookup: {warehouse: a}, default: b}", "contradiction", "keep one of them"),
    ],
)
def test_what_no_lookup_is(entry: str, code: str, hint: str) -> None:
    loaded, (finding, *_) = outcome(RUN.format(entry), "run.yaml")
    assert loaded is None
    assert finding.code == code
    assert hint in (finding.hint or "")


@pytest.mark.parametrize(
    ("targets", "target", "text"),
    [
        ("", None, "echo ${lookup.warehouse.B I}"),
        ("targets: {dev: {variables: {w: id}}}\n", "dev", "echo id"),
        ("targets: {dev: {variables: {w: {lookup: {warehouse: C}}}}}\n", "dev",
         "echo ${lookup.warehouse.C}"),
    ],
)  # fmt: skip
def test_a_name_waits_for_its_platform(targets: str, target: str | None, text: str) -> None:
    loaded, _ = outcome(
        RUN.format("{lookup: {warehouse: B I}}") + targets, "run.yaml", target=target
    )
    assert loaded is not None
    assert loaded.runs[0].spec.fields["command"] == text
