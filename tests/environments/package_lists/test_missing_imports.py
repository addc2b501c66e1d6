"""What code imports and its environment lacks; and silence where that is not certain."""

from sgpu_decl.content.manifest import File, FileKind, Manifest, Python
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.package_lists.missing_imports import (
    lacking_in_base,
    lacking_in_interpreter,
    lacking_in_packages,
    lacking_in_snapshot,
    top_levels,
)
from sgpu_decl.model.environment import Package
from tests.environments.package_lists.test_base_conflicts import base

PYTHON = Python("cpython", "3.11.7", "cpython-311-x86_64-linux-gnu", "linux-x86_64", "glibc-2.36")
SITE = "lib/python3.11/site-packages"


def manifest(*paths: str, sites: tuple[str, ...] = (SITE,)) -> Manifest:
    files = tuple(File(path, FileKind.FILE, 1, "0" * 64) for path in sorted(paths))
    return Manifest(PYTHON, sites, (), files)


def imports(*names: str) -> dict[str, Place]:
    return {name: Place("train.py", line, 1) for line, name in enumerate(names, 1)}


def test_the_names_of_a_snapshot_are_those_of_its_folders_and_modules() -> None:
    taken = manifest(
        f"{SITE}/torch/__init__.py",
        f"{SITE}/torch-2.7.1.dist-info/METADATA",
        f"{SITE}/six.py",
        f"{SITE}/_cffi_backend.cpython-311-x86_64-linux-gnu.so",
        f"{SITE}/google/cloud/storage/__init__.py",
        f"{SITE}/README.txt",
        f"{SITE}/distutils-precedence.pth",
        "lib/editable/0/mine/__init__.py",
        "bin/torchrun",
    )
    assert top_levels(taken) == frozenset({"torch", "six", "_cffi_backend", "google"})
    both = manifest(
        f"{SITE}/a.py", "lib/editable/0/mine/__init__.py", sites=(SITE, "lib/editable/0")
    )
    assert top_levels(both) == frozenset({"a", "mine"})


def test_a_package_without_a_file_is_lacking() -> None:
    (found,) = lacking_in_snapshot(imports("torch", "peft"), manifest(f"{SITE}/torch/x.py"))
    assert (found.code, found.severity) == ("package_missing", Severity.WARNING)
    assert found.place == Place("train.py", 2, 1)
    assert found.summary == "`train.py` imports `peft`, which the environment lacks"
    assert (found.hint or "").startswith("install `peft`")


def test_a_hook_that_may_add_modules_keeps_it_silent() -> None:
    hooked = manifest(f"{SITE}/torch/x.py", f"{SITE}/__editable___mine_finder.pth")
    assert top_levels(hooked) is None
    assert lacking_in_snapshot(imports("mine"), hooked) == ()


def test_of_a_list_only_names_with_known_distributions_are_judged() -> None:
    packages = [
        Package("opencv-python-headless", "4"),
        Package("pyyaml", "6"),
        Package("torch", "2"),
    ]
    found = lacking_in_packages(
        imports("cv2", "yaml", "torch", "sklearn", "some_internal_thing"), packages
    )
    assert [item.summary.split("`")[3] for item in found] == ["sklearn"]
    assert (found[0].hint or "").startswith("install `scikit-learn`")


def test_a_base_and_what_is_installed_on_top_of_it() -> None:
    wanted = imports("torch", "transformers", "databricks", "pyspark")
    assert len(lacking_in_base(wanted, base("gpu-4"))) == 1
    assert lacking_in_base(wanted, base("gpu-4"), [Package("transformers", "4.56.1")]) == ()
    assert lacking_in_base(wanted, base("ai-4")) == ()


def test_of_a_base_that_is_known_in_part_only_what_it_is_known_to_be_without() -> None:
    found = lacking_in_base(imports("torch", "peft"), base("gpu-5"))
    assert [item.place for item in found] == [Place("train.py", 1, 1)]
    assert lacking_in_base(imports("torch"), base("gpu-5"), [Package("torch", "2.9.0")]) == ()
    assert lacking_in_base(imports("torch", "peft"), base("gpu-6")) == ()


def test_an_interpreter_is_asked_for_every_name() -> None:
    found = lacking_in_interpreter(imports("torch", "own_tool"), {"torch"}.__contains__)
    assert [item.place for item in found] == [Place("train.py", 2, 1)]
    assert (found[0].hint or "").startswith("install what provides `own_tool`")
