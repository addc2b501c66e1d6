from collections.abc import Callable

import pytest

from sgpu_decl.config.loaded import Loaded
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.run_reader import spec_of
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from tests.config.conftest import outcome

Good = Callable[..., Loaded]
HEAD = "name: train\ngpus: 1\ntype: CPU\n"
RUN = HEAD + "entrypoint: train.py:main\n"


def test_cells_have_stable_keys_with_axes_sorted(good: Good) -> None:
    loaded = good(RUN + "matrix: {seed: [1, 2], lr: [1e-3, 3e-4]}\n")
    assert [str(run.address) for run in loaded.runs] == [
        'run.train["lr=0.001,seed=1"]',
        'run.train["lr=0.001,seed=2"]',
        'run.train["lr=0.0003,seed=1"]',
        'run.train["lr=0.0003,seed=2"]',
    ]
    assert loaded.runs[1].config.args == {"lr": 0.001, "seed": 2}
    assert loaded.runs[1].config.matrix is None
    assert str(loaded.runs[1].places["args.seed"]) == "run.yaml:5:20"


def test_text_is_bare_where_it_cannot_be_mistaken(good: Good) -> None:
    loaded = good(RUN + "matrix: {a: [x-1, '1', 'two words', true, 'a,b=c']}\n")
    keys = [run.address.key for run in loaded.runs]
    assert keys == ["a=x-1", 'a="1"', 'a="two words"', "a=true", 'a="a,b=c"']


def test_values_go_where_they_are_referred_to(good: Good) -> None:
    loaded = good(
        HEAD
        + "command: [run, '--lr=${matrix.lr}', '${matrix.lr}']\ngpus2: 0\n".replace(
            "gpus2: 0\n", ""
        )
        + "matrix: {lr: [1e-3, 0.1]}\n"
    )
    assert [run.config.command for run in loaded.runs] == [
        ("run", "--lr=1e-3", "1e-3"),
        ("run", "--lr=0.1", "0.1"),
    ]


def test_a_typed_field_takes_a_typed_value(good: Good) -> None:
    loaded = good("name: t\ngpus: ${matrix.n}\ntype: CPU\ncommand: [x]\nmatrix: {n: [1, 2]}\n")
    assert [run.config.gpus for run in loaded.runs] == [1, 2]


def test_a_mapping_of_arguments_takes_every_axis_it_does_not_place_itself(good: Good) -> None:
    loaded = good(RUN + "args: {rate: '${matrix.lr}'}\nmatrix: {lr: [1, 2], seed: [3]}\n")
    assert [run.config.args for run in loaded.runs] == [
        {"rate": 1, "seed": 3},
        {"rate": 2, "seed": 3},
    ]


def test_a_shortcut_gives_what_validation_gives(good: Good) -> None:
    text = (
        RUN + "args: {x: [1, {y: z}], é: ü}\ntimeout: 5m\nmax_parallel: 2\n"
        "matrix: {b: [1, x], a: [true]}\n"
    )
    quick = good(text).runs
    # A reference outside of `args` takes the long way.
    slow = good(text + "description: ${matrix.b}\n").runs
    for one, other in zip(quick, slow, strict=True):
        assert one.address == other.address
        told = {"description": other.spec.fields["description"]}
        assert {**one.spec.fields, **told} == other.spec.fields
        assert one.spec == spec_of(one.config)
        assert RunConfig.model_validate({**one.spec.fields, "name": "train"}) == one.config


def test_a_run_with_nothing_but_arguments_in_its_spec_is_still_json(good: Good) -> None:
    for run in good(RUN + "matrix: {a: [1]}\n").runs:
        assert run.spec == spec_of(run.config)


@pytest.mark.parametrize(
    ("field", "values", "code"),
    [
        ("gpus: ${matrix.n}\ntype: CPU", "[1, 0]", "out_of_range"),
        ("gpus: ${matrix.n}\ntype: GPU_8xH100", "[8, 12]", "bad_gpu_count"),
        ("gpus: 1\ntype: CPU\ntimeout: ${matrix.n}", "[5s, soon]", "bad_duration"),
    ],
)
def test_a_later_cell_that_is_wrong_is_told_as_the_first_would_be(
    bad: Callable[..., tuple[Diagnostic, ...]], field: str, values: str, code: str
) -> None:
    (found,) = bad(f"name: t\n{field}\ncommand: [x]\nmatrix: {{n: {values}}}\n")
    assert found.code == code
    assert found.place is not None
    assert found.place.line in (2, 4)


def test_cells_share_the_places_in_which_they_do_not_differ(good: Good) -> None:
    """Ten thousand cells of one matrix must not be ten thousand times the file."""
    one, two = good(
        HEAD + "command: ['${matrix.n}']\nenv: {variables: {A: b}}\nmatrix: {n: [1, 2]}\n"
    ).runs
    assert one.places is two.places


def test_a_limit_without_a_matrix_is_warned_of() -> None:
    loaded, findings = outcome(RUN + "max_parallel: 2\n")
    assert loaded is not None
    assert [(one.code, one.severity) for one in findings] == [
        ("max_parallel_unused", Severity.WARNING)
    ]
    assert str(findings[0].place).endswith("5:1")


@pytest.mark.parametrize("beside", ["matrix: {seed: [1, 2]}", "on_active: parallel"])
def test_a_limit_that_can_matter_is_not(beside: str, good: Good) -> None:
    assert good(RUN + f"max_parallel: 2\n{beside}\n").runs[0].config.max_parallel == 2


@pytest.mark.parametrize("others", ["", ", rate: '${matrix.lr}'"])
def test_an_argument_that_an_axis_replaces_is_a_warning_at_its_place(others: str) -> None:
    text = RUN + f"args: {{seed: 7{others}}}\nmatrix: {{seed: [1, 2], lr: [0.1]}}\n"
    loaded, findings = outcome(text)
    assert loaded is not None
    args = [run.config.args for run in loaded.runs]
    assert [one["seed"] for one in args if isinstance(one, dict)] == [1, 2]
    assert [(one.code, one.severity) for one in findings] == [
        ("argument_replaced", Severity.WARNING)
    ]
    assert str(findings[0].place) == "run.yaml:5:8"
    assert [str(one.place) for one in findings[0].related] == ["run.yaml:6:10"]


def test_an_argument_beside_a_placed_axis_of_its_name_is_kept(good: Good) -> None:
    loaded = good(RUN + "args: {seed: 7, n: '${matrix.seed}'}\nmatrix: {seed: [1, 2]}\n")
    assert [run.config.args for run in loaded.runs] == [{"seed": 7, "n": 1}, {"seed": 7, "n": 2}]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("1, 1.0", "`1` and `1.0`, which are equal"),
        ("1e3, 1000", "`1000.0` and `1000`, which are equal"),
        ("-0.0, 0", "`-0.0` and `0`, which are equal"),
        ("true, True", "`true` twice"),
        ("0x10, 16", "`16` twice"),
        ("a, 'a'", "`a` twice"),
        ("01, 1", "`1` twice"),
    ],
)
def test_equal_values_are_found(
    bad: Callable[..., tuple[Diagnostic, ...]], values: str, said: str
) -> None:
    (found,) = bad(RUN + f"matrix: {{x: [{values}]}}\n")
    assert (found.code, found.summary) == ("duplicate_cell", f"the axis `x` has {said}")


def test_values_that_differ_stay(good: Good) -> None:
    values = "1, true, '1', 'true', 9007199254740993, 9007199254740993.0, '1.0'"
    assert len(good(RUN + f"matrix: {{x: [{values}]}}\n").runs) == 7


@pytest.mark.parametrize("values", ["1, '1'", "true, 'true'"])
def test_combinations_that_make_the_same_run_are_found(
    bad: Callable[..., tuple[Diagnostic, ...]], values: str
) -> None:
    (found,) = bad(HEAD + f"command: 'x ${{matrix.x}}'\nmatrix: {{x: [{values}]}}\n")
    assert found.code == "duplicate_cell"
    assert found.summary.endswith("would run the same")


@pytest.mark.parametrize("value", ["1e400", ".inf", ".nan"])
def test_a_value_that_no_number_holds_is_refused(
    bad: Callable[..., tuple[Diagnostic, ...]], value: str
) -> None:
    for start in ("entrypoint: t.py:f", "command: 'x ${matrix.x}'"):
        found = bad(HEAD + f"{start}\nmatrix: {{x: [{value}, 1]}}\n")
        assert {one.code for one in found} == {"not_finite"}
