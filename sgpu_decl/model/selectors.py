"""From what a user types to addresses and attempts."""

import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

from sgpu_decl.diagnostics.nearest_names import nearest
from sgpu_decl.errors import NotFound, SgpuError
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.state import Resource

_OFFERED = 5
_ATTEMPT = re.compile(r"(.+)#(\d{1,9})")


def split_attempt(text: str) -> tuple[str, int | None]:
    """`train#8` is `("train", 8)`; without a number it is the latest attempt."""
    match = _ATTEMPT.fullmatch(text)
    return (match[1], int(match[2])) if match else (text, None)


def match_addresses(
    patterns: Iterable[str], addresses: Collection[Address], told: Kind = Kind.RUN
) -> frozenset[Address]:
    """Every address that a pattern names: an address, a name (all cells of its matrix), or a glob.
    A key may hold `*`: an address that is there is no glob. An error speaks of the kind `told`
    where the pattern names none.

    Raises:
        NotFound: a pattern matches nothing.
    """
    matches: set[Address] = set()
    for pattern in patterns:
        hits = {address for address in addresses if _is_name(pattern, address)}
        if not hits and is_glob(pattern):
            hits = {address for address in addresses if _fits_glob(pattern, address)}
        if not hits:
            kind = next((kind for kind in Kind if pattern.startswith(f"{kind}.")), told)
            words = {word for address in addresses for word in (str(address), address.name)}
            close = nearest(pattern, sorted(words))
            raise NotFound(
                f"no {kind} matches `{pattern}`",
                hint=f"did you mean `{close}`?" if close else offered(addresses, kind),
            )
        matches |= hits
    return frozenset(matches)


def resource_named(resources: Mapping[Address, Resource], text: str) -> Resource:
    """The one resource that an address or a name stands for; a bare name is that of a run, and of
    an environment where no run has it.

    Raises:
        NotFound: there is none.
        SgpuError: there are several.
    """
    matches = sorted(match_addresses([text], resources))
    (address, *more) = [item for item in matches if item.kind is Kind.RUN] or matches
    if more:
        raise SgpuError(
            f"`{text}` matches several resources", hint="give one address", code="ambiguous"
        )
    return resources[address]


def names_any(pattern: str, addresses: Iterable[Address]) -> bool:
    """Whether a pattern names one of them."""
    glob = is_glob(pattern)
    return any(
        _is_name(pattern, address) or (glob and _fits_glob(pattern, address))
        for address in addresses
    )


def is_whole_name(text: str, address: Address) -> bool:
    """Whether a text is the address or the label, with the key of a matrix cell."""
    return text in (str(address), address.label)


def is_glob(pattern: str) -> bool:
    """Whether a pattern may name several things that have nothing in common but letters."""
    return any(sign in pattern for sign in "*?")


def offered(addresses: Collection[Address], kind: Kind) -> str:
    """The names of what is there, for the hint of an error."""
    names = sorted({address.name for address in addresses})
    if len(names) < 2:
        return f"the only {kind} here is `{names[0]}`" if names else f"there are no {kind}s here"
    more = len(names) - _OFFERED
    shown = ", ".join(f"`{name}`" for name in names[:_OFFERED])
    return f"the {kind}s here are {shown}" + (f" and {more:,} more" if more > 0 else "")


def _is_name(text: str, address: Address) -> bool:
    return is_whole_name(text, address) or text in (
        address.name,
        f"{address.kind}.{address.name}",
    )


def _fits_glob(pattern: str, address: Address) -> bool:
    glob = pattern.replace("[", "[[]")
    return any(fnmatchcase(word, glob) for word in (str(address), address.label))
