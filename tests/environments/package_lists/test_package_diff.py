"""What differs between environments."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgpu_decl.backends.databricks.bases import base_named
from sgpu_decl.environments.package_lists.package_diff import FactChange, difference
from sgpu_decl.environments.package_lists.packages import cuda_of, normalise
from sgpu_decl.model.environment import Environment, EnvironmentKind, Package
from sgpu_decl.model.plan import PackageChange
from sgpu_decl.planner.environment_changes import compare_packages

names = st.sampled_from(["a", "b", "c", "torch", "peft"])
sets = st.dictionaries(names, st.sampled_from(["1.0", "1.1", "2.0"])).map(
    lambda item: tuple(Package(*pair) for pair in sorted(item.items()))
)


def environment(name: str, **facts: object) -> Environment:
    given = {"packages": (), "kind": EnvironmentKind.LOCK, **facts}
    return Environment(name=name, **given)  # type: ignore[arg-type]


def test_added_removed_and_changed_are_sorted_by_name() -> None:
    before = (Package("torch", "2.7.1"), Package("x", "1.0"), Package("same", "1"))
    after = (Package("torch", "2.13.0"), Package("peft", "0.17.1"), Package("same", "1"))
    assert compare_packages(before, after) == (
        PackageChange(name="peft", before=None, after="0.17.1"),
        PackageChange(name="torch", before="2.7.1", after="2.13.0"),
        PackageChange(name="x", before="1.0", after=None),
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sets, sets)
def test_changes_lead_from_one_set_to_the_other_and_back(
    before: tuple[Package, ...], after: tuple[Package, ...]
) -> None:
    changes = compare_packages(before, after)
    made = {item.name: item.version for item in before}
    for change in changes:
        assert made.pop(change.name, None) == change.before
        if change.after is not None:
            made[change.name] = change.after
    assert made == {item.name: item.version for item in after}
    back = compare_packages(after, before)
    assert [(item.name, item.before, item.after) for item in back] == [
        (item.name, item.after, item.before) for item in changes
    ]
    assert (changes == ()) == (before == after)


def test_what_a_partial_base_does_not_list_is_not_removed() -> None:
    old, new = base_named("ai-4"), base_named("ai-5")
    assert old is not None
    assert new is not None
    found = difference(old.environment, new.environment)
    changed = {package.name: (package.before, package.after) for package in found.packages}
    assert changed["vllm"] == (None, "0.13.0")
    assert changed["spacy"] == ("3.8.7", None)
    assert "torch" not in changed
    assert found.partial == ("ai-5",)
    assert found.facts == (
        FactChange(name="os", before="Ubuntu 24.04.2 LTS", after="Ubuntu 24.04.3"),
    )


def test_a_shorter_version_says_less_and_nothing_else() -> None:
    found = difference(
        environment("a", python="3.12.3", cuda="13"), environment("b", python="3.11", cuda="13.0")
    )
    assert found.facts == (FactChange(name="python", before="3.12.3", after="3.11"),)


def test_names_are_compared_as_their_spelling_does_not_matter() -> None:
    assert normalise("Flash_Attn.CUDA--x") == "flash-attn-cuda-x"


def test_cuda_is_that_of_the_runtime_before_that_of_torch() -> None:
    assert cuda_of([Package("torch", "2.9.0+cu129")]) == "12.9"
    runtime = Package("nvidia-cuda-runtime-cu12", "12.6.77")
    assert cuda_of([Package("torch", "2.9.0+cu129"), runtime]) == "12.6"
    assert cuda_of([Package("nvidia-cuda-runtime", "13.0.48")]) == "13.0"
    assert cuda_of([Package("torch", "2.13.0+cpu")]) is None
