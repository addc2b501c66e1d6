from collections.abc import Mapping as Names

import pytest

from sgpu_decl.text.interpolation import Scope, axes_in, interpolate
from sgpu_decl.text.yaml_nodes import Mapping, Node, Scalar
from sgpu_decl.text.yaml_reader import load


def scope(axes: Names[str, Scalar] | None = None, **variables: str) -> Scope:
    return Scope(
        variables={name: Scalar(text, True, 9, 9, "run.yaml") for name, text in variables.items()},
        target="dev",
        project="shop",
        environ={"HOME": "/home/me"},
        git=lambda: {"commit": "abc", "branch": "main"},
        axes=axes if axes is not None else {},
    )


def value(text: str, within: Scope) -> Scalar:
    document, _ = load(f"v: {text}", "run.yaml")
    assert document is not None
    result = interpolate(document.root, within)
    assert isinstance(result, Mapping)
    scalar = result.entries["v"]
    assert isinstance(scalar, Scalar)
    return scalar


@pytest.mark.parametrize(
    "text",
    [
        "$VAR",
        "${VAR}",
        "${VAR:-x}",
        "'{{ a }}'",
        "'${{ var.x }}'",
        "${#var}",
        "$$",
        "${variable.x}",
    ],
)
def test_what_belongs_to_the_shell_or_to_others_is_untouched(text: str) -> None:
    within = scope(x="1")
    assert value(text, within).text == text.strip("'")
    assert within.findings == []


def test_every_namespace_has_its_values() -> None:
    text = "${var.x}-${target.name}-${project.name}-${git.commit}-${git.branch}-${env.HOME}"
    within = scope(x="1")
    assert value(text, within).text == "1-dev-shop-abc-main-/home/me"
    assert within.findings == []


def test_one_reference_keeps_its_type_and_text_around_it_makes_text() -> None:
    assert value("${var.n}", scope(n="4")).plain
    assert value("'${var.n}'", scope(n="4")).plain
    assert not value("${var.n}0", scope(n="4")).plain
    assert not value("${env.HOME}", scope()).plain


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("${var.epoch}", "unknown_reference", "`${var.epochs}`"),
        ("${matrix.l}", "unknown_reference", "`${matrix.lr}`"),
        ("${env.HOMES}", "undefined_env", "`${env.HOME}`"),
        ("${env.NOPE_X}", "undefined_env", "export NOPE_X"),
        ("${git.comit}", "unknown_reference", "`${git.commit}`"),
        ("${git.dirty}", "no_git", "checkout"),
        ("${target.nam}", "unknown_reference", "`${target.name}`"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(text: str, code: str, hint: str) -> None:
    within = scope({"lr": Scalar("1", True, 1, 1, "f")}, epochs="5")
    value(text, within)
    assert [found.code for found in within.findings] == [code]
    assert hint in (within.findings[0].hint or "")
    assert str(within.findings[0].place) == "run.yaml:1:4"


def test_variables_may_refer_to_others_but_not_to_themselves() -> None:
    assert value("${var.a}", scope(a="${var.b}x", b="1")).text == "1x"
    within = scope(a="${var.b}${var.b}", b="${var.a}${var.a}")
    value("${var.a}", within)
    assert {found.code for found in within.findings} == {"recursive_variable"}


def test_variables_that_multiply_are_stopped() -> None:
    names = {f"v{n}": f"${{var.v{n + 1}}}" * 10 for n in range(12)}
    within = scope(None, **names, v12="x" * 1000)
    value("${var.v0}", within)
    assert "too_long" in {found.code for found in within.findings}


def test_axes_are_found_and_may_be_left_for_later() -> None:
    document, _ = load("a: ${matrix.x}\nb: ['-${matrix.y}-']\nc: ${var.z}", "run.yaml")
    assert document is not None
    assert axes_in(document.root) == {"x", "y"}
    within = scope(z="1")
    within.axes = None
    result = interpolate(document.root, within)
    assert isinstance(result, Mapping)
    assert axes_in(result) == {"x", "y"}
    assert result.entries["c"][0] == "1"


def test_nothing_to_replace_returns_the_same_nodes() -> None:
    document, _ = load("a: {b: [1, 2]}", "run.yaml")
    assert document is not None
    assert interpolate(document.root, scope()) is document.root


def collections(text: str) -> dict[str, Node]:
    document, _ = load(text, "run.yaml")
    assert document is not None
    return document.root.entries


def test_a_value_that_is_one_reference_is_the_whole_list_or_mapping() -> None:
    within = scope()
    within.variables = collections("m: {a: '${var.n}', b: [1]}\nn: 4\n")
    (node,) = collections("v: ${var.m}").values()
    result = interpolate(node, within)
    assert isinstance(result, Mapping)
    inner = result.entries["a"]
    assert isinstance(inner, Scalar)
    assert inner.text == "4"
    assert within.findings == []


def test_a_list_inside_of_text_is_refused() -> None:
    within = scope()
    within.variables = collections("m: [1]")
    assert value("'x ${var.m}'", within).text == "x ${var.m}"
    (finding,) = within.findings
    assert (finding.code, finding.hint) == (
        "wrong_type", "make it the whole value: `${var.m}` alone"
    )  # fmt: skip


def test_lists_that_refer_to_each_other_end() -> None:
    within = scope()
    within.variables = collections("a: ['${var.b}']\nb: ['${var.a}']\n")
    interpolate(collections("v: ${var.a}")["v"], within)
    assert [one.code for one in within.findings] == ["recursive_variable"]
    growing = [f"v{n}: [" + f"'${{var.v{n - 1}}}', " * 9 + "]" for n in range(1, 12)]
    within = scope()
    within.variables = collections("v0: [1]\n" + "\n".join(growing))
    interpolate(collections("v: ${var.v11}")["v"], within)
    assert {one.code for one in within.findings} == {"too_many_values"}
