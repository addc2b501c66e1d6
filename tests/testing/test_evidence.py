"""Claims about the platform name an entry of `model/assumptions.yaml`."""

import re
from pathlib import Path

import pytest

from sgpu_decl.model.assumptions import Profile, assumptions, fits

ROOT = Path(__file__).resolve().parents[2]


def test_every_claim_in_a_comment_has_an_entry() -> None:
    known = {one for entry in assumptions().values() for one in entry.ids}
    named = {
        name
        for room in ("sgpu_decl", "tests")
        for path in (ROOT / room).rglob("*.py")
        for names in re.findall(r"[Ee]vidence: ([A-F]\d*(?:, [A-F]\d*)*)", path.read_text())
        for name in names.split(", ")
    }
    assert named <= known


def test_the_emulator_asks_its_profile_for_all_that_it_follows() -> None:
    sources = (path.read_text() for path in (ROOT / "sgpu_decl" / "testing").rglob("*.py"))
    asked = set(re.findall(r'"([a-z]+(?:-[a-z]+)*)"', "\n".join(sources)))
    for id_, entry in assumptions().items():
        assert entry.emulated is (id_ in asked), id_


def test_tests_name_every_assumption() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    named = set(re.findall(r"[\"`]([a-z]+(?:-[a-z]+)*)[\"`]", sources))
    assert assumptions().keys() <= named


def test_every_entry_is_whole() -> None:
    for id_, entry in assumptions().items():
        assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", id_)
        assert fits(entry, entry.expected)
        assert Profile().value(id_) == entry.expected
        for text in (entry.assumed, entry.evidence, entry.if_wrong):
            assert text
            assert not text.endswith(".")


def test_a_profile_of_another_kind_of_value_is_refused() -> None:
    with pytest.raises(TypeError, match="`read-limit` is a number"):
        Profile({"read-limit": "many"}).number("read-limit")
