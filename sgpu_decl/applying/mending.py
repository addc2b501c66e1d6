"""`sgpu state mv` and `rm`: changes to the record alone, refused while a run is active."""

from sgpu_decl.applying.naming import match_addresses
from sgpu_decl.applying.observing import refresh
from sgpu_decl.applying.site import Site
from sgpu_decl.applying.watching import Runs
from sgpu_decl.errors import ActiveRun, SgpuError
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.state import Resource

__all__ = ["move", "remove", "resource_named"]


def resource_named(site: Site, text: str) -> Resource:
    """The one resource that an address or a name stands for; a bare name is that of a run, and of
    an environment where no run has it.

    Raises:
        NotFound: there is none.
        SgpuError: there are several.
    """
    resources = site.state().resources
    found = sorted(match_addresses([text], resources))
    (address, *more) = [it for it in found if it.kind is Kind.RUN] or found
    if more:
        raise SgpuError(
            f"`{text}` matches several resources", hint="give one address", code="ambiguous"
        )
    return resources[address]


def move(site: Site, source: str, destination: str) -> tuple[Address, Address]:
    """Rename a resource: its history and its folders follow. Returns the old and the new address.

    Args:
        destination: an address, or a bare name, which keeps the kind of `source`.

    Raises:
        NotFound: nothing is recorded at `source`.
        ActiveRun: it is active.
        SgpuError: `destination` has a history of its own.
    """
    resource = resource_named(site, source)
    old, new = resource.address, _parse(destination, resource.address)
    _refuse_active(site, old, "its folders cannot be moved")
    with site.writing("state mv") as writer:
        writer.move(old, new)
        try:
            if old.kind is Kind.RUN:  # others have no folders
                site.backend(resource.backend).move(old, new)
        except SgpuError:
            writer.move(new, old)
            raise
    return old, new


def remove(site: Site, text: str) -> Address:
    """Forget a resource; its attempts stay in history.

    Raises:
        NotFound: nothing is recorded there.
        ActiveRun: it is active.
    """
    old = resource_named(site, text).address
    _refuse_active(site, old, "without its record nothing would stop it")
    with site.writing("state rm") as writer:
        refresh(writer, site.backend)
        writer.remove(old)
    return old


def _parse(text: str, like: Address) -> Address:
    for candidate in (text, f"{like.kind}.{text}"):
        try:
            return Address.parse(candidate)
        except ValueError:
            continue
    raise SgpuError(
        f"`{text}` is no address", hint=f"give one such as `{like.kind}.train`", code="bad_address"
    )


def _refuse_active(site: Site, address: Address, why: str) -> None:
    runs = Runs(site)
    for attempt in site.believed().active:
        if attempt.ref.address == address and runs.status(attempt.ref).state.active:
            raise ActiveRun(
                f"`{attempt.ref}` is active: {why}",
                hint="wait for it with `sgpu wait`, or cancel it first",
            )
