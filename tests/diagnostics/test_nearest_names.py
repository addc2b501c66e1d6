from sgpu_decl.diagnostics.nearest_names import nearest


def test_a_slip_finds_the_name_that_was_meant() -> None:
    assert nearest("gpu", ["type", "gpus", "grace"]) == "gpus"
    assert nearest("max-parallel", ["max_parallel", "matrix"]) == "max_parallel"
    assert nearest("TIMEOUT", ["timeout"]) == "timeout"
    assert nearest("rai", ["ray", "env"]) == "ray"


def test_nothing_near_gives_no_hint() -> None:
    assert nearest("zebra", ["gpus", "type"]) is None
    assert nearest("", ["gpus"]) is None
    assert nearest("x" * 1_000_000, ["gpus"]) is None


def test_of_names_that_are_as_like_the_one_of_the_same_letters_is_meant() -> None:
    keys = ["tags", "args", "gpus", "grace"]
    assert nearest("agrs", keys) == nearest("agrs", reversed(keys)) == "args"
    assert nearest("arg", keys) == "args"
    assert nearest("tag", keys) == "tags"


def test_a_name_with_a_word_of_another_is_near_it() -> None:
    assert nearest("gpu_type", ["type", "grace"]) == "type"
    assert nearest("l", ["lr", "seed"]) == "lr"


def test_a_word_that_only_shares_letters_with_a_name_gives_no_hint() -> None:
    assert nearest("deploy", ["destroy", "plan"]) is None
    assert nearest("launch", ["plan", "cancel"]) is None
    assert nearest("ls", ["logs", "list"]) is None
