from sgpu_decl.diagnostics.suggesting import nearest


def test_a_slip_finds_the_name_that_was_meant() -> None:
    assert nearest("gpu", ["type", "gpus", "grace"]) == "gpus"
    assert nearest("max-parallel", ["max_parallel", "matrix"]) == "max_parallel"
    assert nearest("TIMEOUT", ["timeout"]) == "timeout"


def test_nothing_near_gives_no_hint() -> None:
    assert nearest("zebra", ["gpus", "type"]) is None
    assert nearest("", ["gpus"]) is None
    assert nearest("x" * 1_000_000, ["gpus"]) is None
