"""Names, addresses and globs."""

from sgpu_decl.model.address import Address
from sgpu_decl.model.selectors import match_addresses

STAR = Address.run("sw", 'mode="a*b"')
OTHER = Address.run("sw", 'mode="a or b"')


def test_an_address_that_holds_a_star_names_itself_alone() -> None:
    for text in (str(STAR), STAR.label):
        assert match_addresses([text], [STAR, OTHER]) == {STAR}
        assert match_addresses([text], [OTHER]) == {OTHER}
    assert match_addresses(["sw*"], [STAR, OTHER]) == {STAR, OTHER}
